"""Who is best: methods in the order of their means, each tested against the first, seed by seed."""

from __future__ import annotations

from dataclasses import dataclass

from hatrack.measure import Paired, Reading, paired
from hatrack.report.words import chance, number
from hatrack.studies.table import Table


@dataclass(frozen=True)
class Place:
    """A method's place; `test` compares it with the first on the seeds that both have (two at least)."""

    label: str
    mean: float
    seeds: int
    test: Paired | None


def ranking(table: Table, measure: Reading) -> list[Place]:
    """Return the methods that have a value, best first."""
    rows = [(row.label, row.cells[measure.text]) for row in table.ours()]
    known = [(label, cell.values, cell.mean) for label, cell in rows if cell.mean is not None]
    known.sort(key=lambda entry: entry[2], reverse=measure.measure.larger_is_better)
    places = []
    for label, values, mean in known:
        first = known[0][1]
        common = [seed for seed in first if seed in values]
        tested = label != known[0][0] and len(common) > 1
        test = paired([values[s] for s in common], [first[s] for s in common]) if tested else None
        places.append(Place(label, mean, len(values), test))
    return places


def lines(places: list[Place], measure: Reading) -> list[list[str]]:
    """Return a line a method: its rank, mean and seeds, and where it was tested, what that said."""
    found = []
    for rank, place in enumerate(places, start=1):
        line = [f"{rank}. {place.label}", number(place.mean, measure.measure), str(place.seeds)]
        if place.test is not None:
            gap = place.test.difference
            line += [f"{gap.mean:+.4f}", f"± {gap.half:.4f}", chance(place.test.t), chance(place.test.wilcoxon)]
        found.append(line + [""] * (7 - len(line)))
    return found
