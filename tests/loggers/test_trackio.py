"""A run of trackio's, read from its database."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from .two_tasks import NAMES, SETTINGS, Points

CODE = """
import json, sys
from pathlib import Path
from hatrack.loggers import Trackio
from loggers.two_tasks import expected, learn
folder = Path(sys.argv[1])
(folder / "wanted.json").write_text(json.dumps(expected(learn(folder, Trackio))))
"""


@pytest.mark.skipif(find_spec("trackio") is None, reason="trackio is not installed")
def test_one_run_with_every_figure_at_its_step(tmp_path: Path) -> None:
    # In a process of its own: trackio reads where it writes when it is imported.
    there = {"TRACKIO_DIR": str(tmp_path / "trackio"), "TRACKIO_SPACE_ID": "somebody/elsewhere"}
    paths = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-c", CODE, str(tmp_path)]
    subprocess.run(command, env=os.environ | there | {"PYTHONPATH": paths}, check=True, timeout=600)
    points: Points = {}
    with sqlite3.connect(tmp_path / "trackio" / "hatrack.db") as database:
        for name, step, metrics in database.execute("select run_name, step, metrics from metrics order by id"):
            assert name == "log"
            for key, value in json.loads(metrics).items():
                points.setdefault(key, []).append((step, value))
        ((known, config),) = database.execute("select run_id, config from configs")
    database.close()
    assert {k: list(map(tuple, v)) for k, v in json.loads((tmp_path / "wanted.json").read_text()).items()} == points
    assert known == (tmp_path / "log" / "trackio.id").read_text()
    settings = json.loads(config)
    assert {name: settings[name] for name in (SETTINGS | NAMES)} == SETTINGS | NAMES
    assert settings["_Username"] is None
