"""Signatures with an ed25519 key of the user's, in a PEM file (`openssl genpkey -algorithm ed25519`)."""

from __future__ import annotations

from pathlib import Path

from hatrack.errors import HatrackError, one_line

NEEDED = "a signature needs a package that is not installed: pip install 'hatrack[sign]'."


class Signer:
    """A private key; `public` is the key that it is checked by, in hexadecimal."""

    def __init__(self, path: Path) -> None:
        try:
            from cryptography.exceptions import UnsupportedAlgorithm
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        except ImportError:
            raise HatrackError(NEEDED) from None
        try:
            key = load_pem_private_key(path.read_bytes(), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise HatrackError(
                f"{path} is no private key in PEM without a password ({one_line(error):.80}); make one: openssl "
                f"genpkey -algorithm ed25519 -out {path.name}"
            ) from None
        if not isinstance(key, Ed25519PrivateKey):
            raise HatrackError(f"{path} holds {type(key).__name__}, an ed25519 key is needed.")
        self._key = key
        self.public = key.public_key().public_bytes_raw().hex()

    def sign(self, data: bytes) -> str:
        """Return the signature of `data` in hexadecimal."""
        signature: bytes = self._key.sign(data)
        return signature.hex()
