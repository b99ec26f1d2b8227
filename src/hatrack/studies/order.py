"""Whether our figures stand to each other as the paper's do, whatever their size: order and sign.

order  of two methods on one benchmark that the paper prints differently, is the same one ahead?
sign   of a figure other than 0 where there are two signs (ρ, transfers, differences), is ours on the same side?
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from hatrack.measure import Reading
from hatrack.report.words import counted
from hatrack.studies.table import Table


@dataclass(frozen=True)
class Order:
    """How many pairs and signs there are, and how many of them agree."""

    pairs: int
    alike: int
    signs: int
    same: int

    def __str__(self) -> str:
        """Say it; nothing where there is nothing to compare."""
        said = [f"{self.alike} of {counted(self.pairs, 'pair')} of methods in the paper’s order"] if self.pairs else []
        said += [f"{self.same} of {counted(self.signs, 'figure')} with the paper’s sign"] if self.signs else []
        return ", ".join(said) + "." if said else ""


def order(made: Sequence[Table]) -> Order:
    """Compare the figures without a band."""
    pairs, signs = [], []
    for table in made:
        for measure in table.measures:
            both = list(_both(table, measure))
            pairs += [(a > b) == (x > y) and a != b for (a, x), (b, y) in combinations(both, 2) if x != y]
            if measure.measure.bounds[0] is None or measure.measure.bounds[0] < 0:
                signs += [ours * theirs > 0 for ours, theirs in both if theirs]
    return Order(len(pairs), sum(pairs), len(signs), sum(signs))


def _both(table: Table, measure: Reading) -> Iterator[tuple[float, float]]:
    """Yield our mean and the paper's of every method that has both, where there is no band."""
    for row in table.rows:
        cell = row.cells[measure.text]
        if cell.mean is not None and cell.figure is not None and cell.figure.band is None:
            yield cell.mean, cell.figure.mean
