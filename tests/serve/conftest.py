from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .asking import Client, client_of, serving
from .exports import write_all


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(tmp_path_factory.mktemp("exports"))


@pytest.fixture(scope="session")
def port(exports: Path) -> Iterator[int]:
    with serving(exports) as opened:
        yield opened


@pytest.fixture
def client(port: int) -> Iterator[Client]:
    with client_of(port) as made:
        yield made
