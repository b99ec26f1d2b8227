"""Every network of the zoo as a file: of torch.export, as Python, and as ONNX where there are such operators."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.ship.test_cut_out import learned

from hatrack import HatrackError
from zoo import ZOO

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.CapacityWarning", "ignore::hatrack.HatrackWarning")
FAST = ("alexnet", "lstm", "llama")
REFUSED = {
    "spectrum": r"torch.onnx cannot write down net \(Spectrum\) \(no ONNX for bessel_j0\)",
    "tokens": r"torch.onnx cannot write down .* \(no ONNX for scaled_dot_product_attention\)",  # of three axes
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in ZOO])
def test_is_exported_and_answers_as_the_learner(name: str, tmp_path: Path) -> None:
    learner, (task,) = learned(name)
    kinds = "pt2,torch" if name in REFUSED else "onnx,pt2,torch"
    made = learner.export(0, tmp_path, format=kinds, int8=name in FAST, samples=task)
    files = {"model.pt2", "network.py", "weights.safetensors", "README.md"}
    files |= set() if name in REFUSED else {"model.onnx"}
    files |= {"model.int8.onnx"} if name in FAST else set()
    assert {path.name for path in made.folder.iterdir()} == files | {"card.json"}
    assert max(made.card["apart"].values()) < 1e-5
    if name in REFUSED:
        with pytest.raises(HatrackError, match=REFUSED[name]):
            learner.export(0, tmp_path / "onnx", samples=task)
        assert not (tmp_path / "onnx").exists()
