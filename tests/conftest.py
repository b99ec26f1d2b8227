from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests: playwright runs once in a process."""
    from browser import chromium  # here, so that machines without playwright can run the other tests

    with chromium() as started:
        yield started
