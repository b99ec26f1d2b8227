"""What somebody might do to a saved learner so that an old task answers otherwise and the checker does not see it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hatrack import HatrackError, Learner, Task
from hatrack.methods import METHODS
from hatrack.ship.certificate.check_hatrack import Problem, compare

from .saves import copied, edit, page_of, rewrite, taught

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")
Page = dict[str, Any]
Tensors = dict[str, Tensor]


@cache
def base(method: str = "hat") -> tuple[Learner, Path]:
    learner = taught(method, 2)
    folder = Path(mkdtemp()) / "saved"
    learner.save(folder)
    return learner, folder


def odd(change: Callable[..., object], kind: str | None = None, method: str = "hat") -> dict[str, list[str] | None]:
    """Return what is found after a change of the page, or of a tensor file."""
    folder = base(method)[1]
    return compare(folder, edit(folder, change) if kind is None else rewrite(folder, kind, change))


def swapped(first: str, second: str) -> Callable[[Tensors], None]:
    def swap(held: Tensors) -> None:
        held[first], held[second] = held[second], held[first]

    return swap


def test_a_save_that_was_only_written_anew_is_unchanged() -> None:
    """Else everything below would pass whatever it did."""
    assert odd(lambda page: None) == odd(lambda held: None, "tasks") == odd(lambda held: None, "live")
    assert odd(lambda page: None) == {"t0": [], "t1": []}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_a_type_that_holds_the_same_numbers(dtype: torch.dtype) -> None:
    def change(held: Tensors) -> None:
        held["head/0/bias"] = held["head/0/bias"].to(dtype)

    assert odd(change, "tasks") == {"t0": ["head/bias"], "t1": []}


def test_the_same_bytes_as_another_type() -> None:
    def change(held: Tensors) -> None:
        held["head/0/bias"] = held["head/0/bias"].view(torch.int32)

    assert odd(change, "tasks")["t0"] == ["head/bias"]


def test_the_same_bytes_in_another_shape() -> None:
    def change(held: Tensors) -> None:
        held["private/0/norm.running_var"] = held["private/0/norm.running_var"].view(2, 2)

    assert odd(change, "tasks")["t0"] == ["net/norm.running_var"]


@pytest.mark.parametrize("name", ["head/{}/weight", "private/{}/norm.running_mean", "method/mask/{}"])
def test_tensors_of_two_tasks_exchanged(name: str) -> None:
    found = odd(swapped(name.format(0), name.format(1)), "tasks")
    assert all(len(parts or ()) == 1 for parts in found.values()), found


def test_tensors_of_one_shape_exchanged_within_a_task() -> None:
    found = odd(swapped("private/0/norm.weight", "private/0/norm.bias"), "tasks")
    assert found == {"t0": ["net/norm.weight", "net/norm.bias"], "t1": []}


def test_an_entry_of_another_task_s_head() -> None:
    def change(held: Tensors) -> None:
        held["head/0/weight"][1, 2] = held["head/1/weight"][1, 2]

    assert odd(change, "tasks") == {"t0": ["head/weight"], "t1": []}


def test_rows_of_a_shared_weight_exchanged() -> None:
    """The used entries hold the same values as a set, in other places."""
    learner, _ = base("pmask")
    use = learner.method.use(0)
    assert use is not None
    first, second = use["conv.weight"].flatten().nonzero()[:2].flatten().tolist()

    def change(held: Tensors) -> None:
        flat = held["net/conv.weight"].view(-1)
        flat[[first, second]] = flat[[second, first]]

    assert odd(change, "live", "pmask")["t0"] == ["net/conv.weight"]


def test_a_mask_moved_to_other_entries_of_the_same_values() -> None:
    """Which entries are used counts, not their values alone: all weights of SupSup's layers are ± one number."""
    learner, _ = base("supsup")
    use, weight = learner.method.use(0), learner.model.net.get_parameter("layer.weight").flatten()
    assert use is not None
    mask = use["layer.weight"].flatten() > 0
    open_, closed = next(
        (i, j) for i in range(len(mask)) for j in range(len(mask)) if mask[i] and not mask[j] and weight[i] == weight[j]
    )
    at = learner.probes[0].relied.forms["layer.weight"][2]  # type: ignore[union-attr]

    def change(held: Tensors) -> None:
        for entry in (open_, closed):
            held["method/mask/0"][(at + entry) // 8] ^= 1 << (7 - (at + entry) % 8)

    assert odd(change, "tasks", "supsup")["t0"] == ["net/layer.weight", "method/mask/0"]


def test_the_other_nan() -> None:
    def nan(bits: int) -> Callable[[Tensors], None]:
        def change(held: Tensors) -> None:
            held["head/0/bias"].view(torch.int32)[0] = bits

        return change

    _, folder = base()
    one = copied(rewrite(folder, "tasks", nan(0x7FC00000)), "one")
    assert compare(one, rewrite(folder, "tasks", nan(0x7FC00000)))["t0"] == []
    assert compare(one, rewrite(folder, "tasks", nan(0x7FC00001)))["t0"] == ["head/bias"]


def test_minus_zero() -> None:
    _, folder = base()

    def zero(value: float) -> Callable[[Tensors], None]:
        return lambda held: held["head/0/bias"].fill_(value)

    one = copied(rewrite(folder, "tasks", zero(0.0)), "one")
    assert compare(one, rewrite(folder, "tasks", zero(-0.0)))["t0"] == ["head/bias"]


# ---- tensors that come first, or from elsewhere


def test_a_head_in_the_file_of_the_task_in_progress_comes_first() -> None:
    def change(held: Tensors) -> None:
        held["head/0/weight"] = torch.zeros(2, 5)

    assert odd(change, "live") == {"t0": ["live head/weight"], "t1": []}


def test_a_head_in_the_file_of_the_task_in_progress_hides_none() -> None:
    """Between tasks hatrack does not look at it."""
    learner, folder = base()
    head = learner.model.heads[0].weight.detach().clone()
    other = rewrite(folder, "live", lambda held: held.update({"head/0/weight": head}))
    other = rewrite(other, "tasks", lambda held: held["head/0/weight"].add_(1.0))
    assert compare(folder, other) == {"t0": ["head/weight", "live head/weight"], "t1": []}


def test_an_own_tensor_that_covers_a_shared_one() -> None:
    def change(held: Tensors) -> None:
        held["private/0/conv.weight"] = torch.zeros(4, 1, 3, 3)

    found = odd(change, "tasks")
    assert found == {"t0": ["net/conv.weight"], "t1": []}


def test_an_example_that_the_unit_map_would_be_traced_with() -> None:
    def change(held: Tensors) -> None:
        held["example"] = torch.zeros(1, 1, 9, 9)

    assert odd(change, "tasks") == {"t0": ["example"], "t1": ["example"]}


@pytest.mark.parametrize(("first", "second"), [("head/0/weight", "head/1/weight"), ("head/0/bias", "head/1/bias")])
def test_an_alias_in_the_page(first: str, second: str) -> None:
    found = odd(lambda page: page["files"]["tasks"]["same"].update({first: second}))
    assert found == {"t0": [first.replace("0/", "")], "t1": []}


def test_a_page_that_names_another_file() -> None:
    _, folder = base()
    other = rewrite(folder, "live", lambda held: held["net/fixed.weight"].add_(1.0))
    page = page_of(folder)
    fake = other / page["files"]["live"]["name"]
    fake.rename(other / "live-ffffffffffff.safetensors")
    (other / fake.name).write_bytes((folder / fake.name).read_bytes())  # the true one still lies there

    found = compare(
        folder, edit(other, lambda page: page["files"]["live"].update(name="live-ffffffffffff.safetensors"))
    )
    assert found == {"t0": ["net/fixed.weight"], "t1": ["net/fixed.weight"]}


def test_a_tensor_that_is_left_out() -> None:
    found = odd(lambda page: page["files"]["tasks"]["order"].remove("private/0/norm.running_mean"))
    assert found == {"t0": ["net/norm.running_mean"], "t1": []}


def test_an_entry_of_packnet_given_to_another_task() -> None:
    learner, _ = base("packnet")
    owner = learner.method.state()["owner/layer.weight"]
    mine = (owner == 1).nonzero()[0].tolist()

    def change(held: Tensors) -> None:
        held["method/owner/layer.weight"][tuple(mine)] = 2

    assert odd(change, "tasks", "packnet") == {"t0": ["net/layer.weight"], "t1": []}


# ---- the page


def test_a_task_renamed() -> None:
    assert odd(lambda page: page["tasks"][0].update(name="other")) == {"t0": None, "t1": []}


def test_two_tasks_of_one_name() -> None:
    with pytest.raises(Problem, match="two tasks of one name"):
        odd(lambda page: page["tasks"][1].update(name="t0"))


def test_names_exchanged() -> None:
    def change(page: Page) -> None:
        page["tasks"][0]["name"], page["tasks"][1]["name"] = "t1", "t0"

    found = odd(change)
    assert all("number" in (parts or ()) and "head/weight" in (parts or ()) for parts in found.values())


def test_tasks_in_another_order_with_all_that_is_theirs() -> None:
    """Who asks by number is answered by the other task."""
    _, folder = base("one")

    def held(tensors: Tensors) -> None:
        moved = {name: t for name, t in tensors.items() if name.split("/")[1] in ("0", "1")}
        for name, tensor in moved.items():
            what, number, *rest = name.split("/")
            tensors["/".join([what, "10"[int(number)], *rest])] = tensor

    def page(told: Page) -> None:
        for key in ("tasks", "environments", "seals", "own_probes", "relied", "capacity"):
            told[key] = told[key][::-1]

    edited = edit(rewrite(folder, "tasks", held), page)
    found = compare(folder, edited)
    assert all("number" in (parts or ()) for parts in found.values()), found


def test_a_task_fewer() -> None:
    assert odd(lambda page: page.update(finished=1)) == {"t0": [], "t1": None}


def test_no_task_at_all() -> None:
    with pytest.raises(Problem, match="nothing to compare"):
        compare(edit(base()[1], lambda page: page.update(finished=0)), base()[1])


PAGE: list[tuple[str, Callable[[Page], object], str]] = [
    ("mean", lambda page: page["tasks"][0]["inputs"].update(mean=[0.2]), "inputs"),
    ("permutation", lambda page: page["tasks"][0]["inputs"].update(permutation=list(range(25))), "inputs"),
    ("ids", lambda page: page["tasks"][0]["inputs"].update(ids=True), "inputs"),
    ("kind", lambda page: page["tasks"][0]["kind"].update(dtype="uint8"), "inputs"),
    ("target", lambda page: page["tasks"][0]["target"].update(name="dense"), "target"),
    ("classes", lambda page: page["tasks"][0].update(classes=3), "target"),
    ("settings", lambda page: page["settings"].update(norm="shared"), "method"),
    ("method", lambda page: page.update(method="pmask"), "method"),
    ("code", lambda page: page.update(code="mine.py:Mine sha256 0"), "method"),
    ("features", lambda page: page.update(features=0), "method"),
    ("precision", lambda page: page.update(answers="bf16"), "method"),
    ("seed", lambda page: page.update(seed=1), "method"),
    ("environment", lambda page: page["environments"][0].update(torch="1.0"), "probes"),
    ("own probes", lambda page: page["own_probes"].__setitem__(0, "0" * 64), "probes"),
    ("entries", lambda page: page["relied"][0]["entries"].update({"layer.weight": "none"}), "net/layer.weight"),
    ("all entries", lambda page: page["relied"][0]["entries"].pop("layer.weight"), "net/layer.weight"),
    ("a frozen one", lambda page: page["relied"][0]["entries"].update({"scale": "none"}), "net/scale"),
    ("state", lambda page: page["relied"][0]["state"].clear(), "method/mask/0"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "part"), [(c, p) for _, c, p in PAGE], ids=[name for name, _, _ in PAGE])
def test_a_word_of_the_page(change: Callable[[Page], object], part: str) -> None:
    assert part in (odd(change)["t0"] or ())


def test_what_no_answer_hangs_on() -> None:
    def change(page: Page) -> None:
        page["settings"]["lr"], page["epochs"], page["batch_size"] = 0.1, 7, 3

    assert odd(change) == {"t0": [], "t1": []}


class Two(nn.Module):
    """A network of two inputs, of one shape."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 6)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.relu(self.layer(a - 2 * b))


def test_the_order_of_a_task_s_inputs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    learner = Learner(Two(), METHODS["hat"](), epochs=1, device="cpu")
    x = (torch.randn(20, 4), torch.randn(20, 4))
    learner.learn(Task("t0", (x, (x[0][:, 0] > 0).long())), progress=False)
    learner.save(tmp_path / "saved")

    def change(page: Page) -> None:
        parts = page["tasks"][0]["kind"]["parts"]
        page["tasks"][0]["kind"]["parts"] = dict(reversed(parts.items()))

    found = compare(tmp_path / "saved", edit(tmp_path / "saved", change))
    assert found == {"t0": ["inputs"]}


def test_a_save_of_before_cannot_be_compared(tmp_path: Path) -> None:
    _, folder = base()
    old = edit(folder, lambda page: page.pop("relied"))
    with pytest.raises(Problem, match="save it again") as told:
        compare(folder, old)
    assert told.value.args[1] == 3
    with pytest.raises((HatrackError, OSError)):
        compare(folder, tmp_path / "nowhere")
