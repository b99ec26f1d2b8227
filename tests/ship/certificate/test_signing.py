"""Signatures: whose certificate it is can be known, and no other can be put in its place."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from hatrack import HatrackError, Learner
from hatrack.ship.certificate.check_hatrack import Problem, canonical, compare
from hatrack.ship.certificate.check_hatrack import read as read_checked

from .saves import taught
from .test_certify import checked, read, sealed

pytest.importorskip("cryptography")
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from hatrack.ship.certificate.signing import Signer

PEM, RAW = serialization.Encoding.PEM, serialization.NoEncryption()


def new_key(path: Path, key: object = None) -> Path:
    made = key or ed25519.Ed25519PrivateKey.generate()
    path.write_bytes(made.private_bytes(PEM, serialization.PrivateFormat.PKCS8, RAW))  # type: ignore[attr-defined]
    public = made.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined]
    path.with_suffix(".public").write_bytes(public)
    return path


@cache
def signed() -> tuple[Learner, Path]:
    folder = Path(mkdtemp())
    learner = taught("hat", 1)
    learner.save(folder / "saved")
    new_key(folder / "mine.pem")
    new_key(folder / "other.pem")
    learner.certify(folder / "c.json", key=folder / "mine.pem")
    return learner, folder


def test_it_is_checked_against_a_key_in_a_file_or_in_hexadecimal() -> None:
    _, folder = signed()
    key = read(folder / "c.json")["key"]
    for given in (folder / "mine.public", key):
        assert checked(folder / "c.json", folder / "saved", "--key", given)[0] == 0
    assert checked(folder / "c.json", folder / "saved", "--key", folder / "other.public")[0] == 1
    assert checked(folder / "c.json", folder / "saved", "--key", "0" * 64)[0] == 1


def test_a_certificate_that_is_not_signed_is_none_where_a_key_is_asked_for(tmp_path: Path) -> None:
    learner, folder = signed()
    learner.certify(tmp_path / "plain.json")
    assert checked(tmp_path / "plain.json", folder / "saved")[0] == 0
    for key in (folder / "mine.public", ""):
        assert checked(tmp_path / "plain.json", folder / "saved", "--key", key)[0] == 3


def test_a_signature_cannot_be_taken_along(tmp_path: Path) -> None:
    """Neither on another text, nor off, nor with the key exchanged."""
    _, folder = signed()
    page = read(folder / "c.json")
    forged = {
        "another text": page | {"events": [{"task": "t0", "event": "updated"}]},
        "another signature": page
        | {"signature": page["signature"][:-1] + ("0" if page["signature"][-1] != "0" else "1")},
        "another key": page | {"key": Signer(folder / "other.pem").public},
        "no signature": page | {"signature": "00"},
    }
    for why, told in forged.items():
        (tmp_path / "f.json").write_bytes(sealed(told))
        with pytest.raises(Problem) as found:
            read_checked(tmp_path / "f.json", None)
        assert found.value.args[1] == 1, why
    (tmp_path / "f.json").write_bytes(sealed(page | {"signature": None, "key": None}))
    assert checked(tmp_path / "f.json", folder / "saved", "--key", folder / "mine.public")[0] == 3


def test_one_who_signs_anew_with_a_key_of_his_own_is_found(tmp_path: Path) -> None:
    _, folder = signed()
    page = {n: v for n, v in read(folder / "c.json").items() if n not in ("sha256", "signature")}
    page["tasks"][0]["parts"]["head/weight"] = "0" * 64
    other = Signer(folder / "other.pem")
    page["key"] = other.public
    (tmp_path / "f.json").write_bytes(sealed(page | {"signature": other.sign(canonical(page))}))
    read_checked(tmp_path / "f.json", None)
    with pytest.raises(Problem, match="signed by another key"):
        compare(tmp_path / "f.json", folder / "saved", str(folder / "mine.public"))


def test_a_signed_chain_goes_on_under_its_key(tmp_path: Path) -> None:
    learner, folder = signed()
    for key in (None, folder / "other.pem"):
        with pytest.raises(HatrackError, match="give that key"):
            learner.certify(tmp_path / "2.json", previous=folder / "c.json", key=key)
    assert not (tmp_path / "2.json").exists()
    learner.certify(tmp_path / "2.json", previous=folder / "c.json", key=folder / "mine.pem")
    assert compare(folder / "c.json", tmp_path / "2.json") == {"t0": []}
    page = {n: v for n, v in read(tmp_path / "2.json").items() if n not in ("sha256", "signature")}
    other = Signer(folder / "other.pem")
    page["key"] = other.public
    for told in (page | {"signature": other.sign(canonical(page))}, page | {"key": None, "signature": None}):
        (tmp_path / "f.json").write_bytes(sealed(told))
        with pytest.raises(Problem, match="not under its key"):
            compare(folder / "c.json", tmp_path / "f.json")


def test_a_chain_may_be_signed_from_some_certificate_on(tmp_path: Path) -> None:
    learner, folder = signed()
    learner.certify(tmp_path / "1.json")
    learner.certify(tmp_path / "2.json", previous=tmp_path / "1.json", key=folder / "mine.pem")
    assert compare(tmp_path / "1.json", tmp_path / "2.json") == {"t0": []}


def test_what_is_no_ed25519_key_is_one_line(tmp_path: Path) -> None:
    learner, _ = signed()
    (tmp_path / "text.pem").write_text("no key")
    new_key(tmp_path / "curve.pem", ec.generate_private_key(ec.SECP256R1()))
    for name, said in (("text.pem", "no private key in PEM"), ("curve.pem", "an ed25519 key is needed")):
        with pytest.raises(HatrackError, match=said) as told:
            learner.certify(tmp_path / "c.json", key=tmp_path / name)
        assert "\n" not in str(told.value)
    with pytest.raises(OSError, match="nowhere"):
        learner.certify(tmp_path / "c.json", key=tmp_path / "nowhere.pem")
    assert not (tmp_path / "c.json").exists()


def test_a_key_of_openssl_s(tmp_path: Path) -> None:
    learner, folder = signed()
    try:
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", "k.pem"], cwd=tmp_path, check=True)
        subprocess.run(["openssl", "pkey", "-in", "k.pem", "-pubout", "-out", "p.pem"], cwd=tmp_path, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no openssl with ed25519")
    learner.certify(tmp_path / "c.json", key=tmp_path / "k.pem")
    assert checked(tmp_path / "c.json", folder / "saved", "--key", tmp_path / "p.pem")[0] == 0
