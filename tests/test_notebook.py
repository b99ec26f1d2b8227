"""What a notebook shows: small tables, whole HTML, and no text in it that is obeyed."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

import hatrack
from hatrack import HAT, Learner, Task
from hatrack.nets import build
from hatrack.notebook import ACCURACY, shares, table

NASTY = "<script>alert('x')</script> & \x1b[2J"


class Reader(HTMLParser):
    """Notes the tags and checks that each is closed; what `td` hold, row by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.rows: list[list[str]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def task(name: str) -> Task:
    x, y = torch.randn(40, 4, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    return Task(name, (x, y), (x, y), (x, y))


@pytest.fixture(scope="module")
def learner() -> Learner:
    torch.manual_seed(0)
    made = Learner(build("mlp", (4,), widths=(8, 6)), HAT(), epochs=2)
    for name in ("a", NASTY):
        made.learn(task(name))
    return made


def test_a_table_holds_what_it_is_given() -> None:
    assert Reader(table(["x", "y"], [["a", 1], [NASTY, 2.5]])).rows == [
        ["x", "y"], ["a", "1"], [NASTY.replace("\x1b", "\\x1b"), "2.5"],
    ]  # fmt: skip
    assert Reader(shares(["", 1, 2], [["a", 0.5], ["b", None, 1.0]], ACCURACY)).rows[1:] == [
        ["a", "0.500"], ["b", "–", "1.000"],
    ]  # fmt: skip


def test_a_learner_shows_its_tasks_matrix_and_masks(learner: Learner) -> None:
    read = Reader(learner._repr_html_())
    assert read.tags <= {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td"}
    cells = [f"{value:.3f}" for value in learner.matrix()[1]]
    assert any(row[1:] == cells for row in read.rows)
    masks = learner.masks()
    assert masks is not None
    shown = {row[0]: row[1:] for row in read.rows if row[0] in ("fc1", "fc2")}
    assert shown == {site: [f"{float(masks[f'{t}/{site}'].mean()):.3f}" for t in (0, 1)] for site in ("fc1", "fc2")}
    assert "none learned" not in repr(learner)
    assert repr(learner).startswith("Learner(Sequential, HAT(lr=0.05, ")
    assert repr(learner).endswith(f"tasks=2: 'a', {NASTY!r})")


def test_a_learner_without_tasks_shows_itself_too() -> None:
    empty = Learner(build("mlp", (4,), widths=(8,)), hatrack.methods.METHODS["sgd"](), epochs=1)
    assert "0 tasks learned" in empty._repr_html_()
    assert repr(empty).endswith("tasks=0: none)")


def test_a_verification_an_explanation_and_a_task_show_themselves(learner: Learner) -> None:
    verdict = Reader(learner.verify()._repr_html_())
    assert [row[1] for row in verdict.rows[1:3]] == ["unchanged", "unchanged"]
    explained = hatrack.explain(build("resnet18", (3, 16, 16), width=4), torch.zeros(1, 3, 16, 16))
    read = Reader(explained._repr_html_())
    assert [row[0] for row in read.rows[1 : len(explained.sites) + 1]] == [site.name for site in explained.sites]
    assert Reader(task(NASTY)._repr_html_()).rows == [["classes", "train", "valid", "test"], ["2", "40", "40", "40"]]
    assert repr(task("a")) == "Task('a', classes=2, train=40, valid=40, test=40)"


def test_a_study_shows_its_means(tmp_path: Path) -> None:
    from studies.made_up import outcome

    found = outcome(tmp_path)
    read = Reader(found._repr_html_())
    assert read.rows[0][:2] == ["split-digits", "seeds"]
    assert set(read.rows[0]) >= {measure.text for measure in found.study.measures}
    assert {row[0] for row in read.rows[1:]} >= {method.label for method in found.study.methods}
