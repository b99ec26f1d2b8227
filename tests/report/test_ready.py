"""Drawing is imported in the background on request, and only then."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from hatrack.report import get_ready
assert "matplotlib" not in sys.modules
get_ready().join()
assert "matplotlib" in sys.modules
"""


def test_what_drawing_takes_is_imported_in_a_thread() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
