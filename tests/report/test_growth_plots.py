"""What a reader sees of room and growth."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hatrack.errors import HatrackError
from hatrack.report import growth_plots, page
from hatrack.report.read import Result, Run, run_of


def run(*taken: float, growth: list[dict[str, Any]] | None = None) -> Run:
    tasks = [{"name": f"task {i}", "classes": 2} for i in range(len(taken))]
    shares = [{"total": share, "layers": {"fc1": share, "fc2": share / 2}} for share in taken]
    known = {
        "schema": 1, "hatrack": "0", "spec": {"method": "hat", "benchmark": "b", "net": "n", "seed": 0}, "tasks": tasks,
        "accuracy": [[None] * (t + 1) for t in range(len(taken))], "metrics": {}, "capacity": shares, "growth": growth,
    }  # fmt: skip
    return run_of(Result.model_validate(known), epochs=[])


WIDENED = {"tasks": 2, "parameters": [1000, 1250], "taken": {"total": 0.4, "layers": {"fc1": 0.4, "fc2": 0.2}}}


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_room_is_drawn_for_tasks_so_far_and_twenty_more() -> None:
    picture = growth_plots.forecast(run(0.3, 0.5, 0.6, 0.7))
    assert "eight of ten draws in the band" in picture.caption
    assert re.search(r"5% \(dashed\) or more: \d+", picture.caption)
    assert "20" in texts(picture.svg)


def test_a_growth_gives_room() -> None:
    """The same shares, of which the last was measured in a network that has been widened since."""
    full = growth_plots.forecast(run(0.3, 0.94)).caption
    roomy = growth_plots.forecast(run(0.3, 0.94, growth=[WIDENED])).caption
    low, high = (int(re.findall(r"or more: (\d+)", caption)[0]) for caption in (full, roomy))
    assert low < high


def test_sizes_are_those_that_tasks_were_learned_with() -> None:
    grown = run(0.3, 0.5, 0.45, 0.6, growth=[WIDENED, {**WIDENED, "tasks": 3, "parameters": [1250, 1500]}])
    assert growth_plots.sizes_over_tasks(grown) == [1000, 1000, 1250, 1500]
    caption = growth_plots.parameters(grown).caption.replace("\N{THIN SPACE}", ",")
    assert "before task 3 from 1,000 to 1,250; before task 4 from 1,250 to 1,500" in caption
    assert "Growth of the network" in page.page(grown)


def test_where_there_is_nothing_to_draw_it_is_said() -> None:
    with pytest.raises(HatrackError, match="needs two tasks"):
        growth_plots.forecast(run(0.3))
    with pytest.raises(HatrackError, match="was not widened"):
        growth_plots.parameters(run(0.3, 0.5))
    assert "Growth of the network" not in page.page(run(0.3, 0.5))
