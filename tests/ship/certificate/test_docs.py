"""docs/certificate.md: the pipeline works as it stands there, and the table of fields is that of a certificate."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hatrack.ship.certificate import check_hatrack

from .saves import flip, page_of, places, taught
from .test_certify import certified, read
from .test_signing import new_key

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")
TEXT = (Path(__file__).parents[3] / "docs" / "certificate.md").read_text()


def test_the_fields_are_those_of_a_certificate() -> None:
    page = read(certified()[1] / "first.json")
    rows = TEXT.split("| field | |")[1].split("\n\n")[0].splitlines()[2:]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    task = page["tasks"][0]
    assert named == {*page, *task} - {"schema", "hatrack", "name"}
    rows = TEXT.split("| part | what is digested |")[1].split("\n\n")[0].splitlines()[2:]
    parts = {name for row in rows for name in re.findall(r"`([\w/…]+)`", row.split("|")[1])}
    assert parts == {re.sub("/.*", "/…", part) for part in task["parts"]}


def test_the_pipeline_ends_as_it_should(tmp_path: Path) -> None:
    """What the workflow runs, in a folder such as it wants; packages are at hand here."""
    workflow = TEXT.split("```yaml\n")[1].split("```")[0]
    installed, command = re.findall(r"- run: (.+)", workflow)
    assert installed == "pip install numpy safetensors cryptography"
    learner = taught("hat", 1)
    learner.save(tmp_path / "models" / "current")
    new_key(tmp_path / "public.pem")
    learner.certify(tmp_path / "certificate.json", key=tmp_path / "public.pem")
    (tmp_path / "public.public").replace(tmp_path / "public.pem")
    (tmp_path / "check_hatrack.py").write_text(Path(check_hatrack.__file__).read_text())
    words = [sys.executable, "-I", *command.split()[1:]]
    assert subprocess.run(words, cwd=tmp_path, timeout=120).returncode == 0
    path = tmp_path / "models" / "current" / page_of(tmp_path / "models" / "current")["files"]["tasks"]["name"]
    flip(path, places(path)["method/mask/0"][0], 0)
    assert subprocess.run(words, cwd=tmp_path, timeout=120).returncode == 1
