"""The package itself: its public names, and that importing it stays light."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import hatrack


def test_every_public_name_is_there() -> None:
    for name in hatrack.__all__:
        assert getattr(hatrack, name) is not None
    assert set(hatrack.__all__) <= set(dir(hatrack))


def own(kind: type) -> set[str]:
    """Return what a class has by hatrack, without an underscore before it."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("hatrack.")]
    return {name for base in ours for name in vars(base) if not name.startswith("_")}


def test_what_the_readme_calls_stable_is_what_there_is() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    section = text.split("## What is stable\n")[1].split("\n## ")[0]
    methods = {name for kind in (hatrack.Learner, hatrack.Hats) for name in own(kind)}
    named = re.findall(r"`([A-Za-z_]+)`", section)
    assert sorted(named) == sorted({*hatrack.__all__, *methods})


def test_what_is_exported_is_typed_as_it_is() -> None:
    """What a type checker reads and what is loaded come from one place each."""
    source = Path(hatrack.__file__).read_text()
    for name, home in hatrack._HOMES.items():
        assert re.search(rf"from hatrack\.{re.escape(home)} import .*\b{name}\b", source), name
    assert sorted(hatrack._HOMES) == sorted(hatrack.__all__)


def test_the_library_needs_torch_numpy_and_safetensors_only() -> None:
    """In a fresh process, with everything else made impossible to import."""
    code = """
import sys
for name in ("pydantic", "sklearn", "typer", "rich", "matplotlib", "pyarrow", "PIL", "datasets", "optuna", "ray"):
    sys.modules[name] = None
import hatrack, torch
from hatrack.methods import METHODS
from hatrack.nets import build
hatrack.Learner, hatrack.load, hatrack.tasks, hatrack.explain
x, y = torch.randn(20, 4), torch.arange(20) % 2
learner = hatrack.Learner(build("mlp", (4,), widths=(5,)), hatrack.HAT(), epochs=1)
learner.learn(hatrack.Task("t", (x, y)))
assert learner.verify().ok
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=120)


@pytest.mark.parametrize(
    "used",
    [
        "methods.METHODS['ewc'](lam=500)",
        "data.load",
        "measure.forgetting",
        "targets.Regression()",
        "plot.matrix",
        "nets.build('mlp', (4,), widths=(5,))",
    ],
)
def test_subpackages_are_there_at_once(used: str) -> None:
    """In a fresh process, where nothing else has imported them yet."""
    subprocess.run([sys.executable, "-c", f"import hatrack; hatrack.{used}"], check=True, timeout=60)


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys, hatrack.cli; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
