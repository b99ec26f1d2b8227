"""The table and the ranking, against numpy and scipy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from hatrack.measure import reading
from hatrack.studies.ranking import ranking
from hatrack.studies.table import tables, verdicts

from .made_up import outcome


def test_figures_over_seeds(tmp_path: Path) -> None:
    made = outcome(tmp_path, failed=(("sgd", 1),))
    [table] = tables(made)
    assert [row.label for row in table.rows] == ["hat", "ewc", "sgd", "CAB"]
    hat = [f.result["metrics"]["acc"] for f in made.findings if f.run.method == "hat" and f.result]
    cell = table.rows[0].cells["acc"]
    assert cell.mean == pytest.approx(np.mean(hat))
    assert cell.std == pytest.approx(np.std(hat, ddof=1))
    low, high = stats.t.interval(0.95, 2, np.mean(hat), stats.sem(hat))
    assert cell.interval is not None
    assert cell.interval.half == pytest.approx((high - low) / 2)
    assert cell.verdict == "within"
    assert table.rows[2].cells["acc"].verdict == "above"
    assert verdicts([table]) == {"within": 1, "above": 1}
    assert (table.rows[2].finished, len(table.rows[2].findings)) == (2, 3)
    assert list(table.rows[2].cells["acc"].values) == [0, 2]
    assert (table.rows[0].seconds, table.rows[0].memory) == (pytest.approx(14.23), 3 * 2**20)
    assert not table.rows[3].findings
    assert table.rows[3].cells["acc"].mean is None


def test_ranking_by_paired_tests(tmp_path: Path) -> None:
    made = outcome(tmp_path, failed=(("sgd", 1),))
    [table] = tables(made)
    first, second, third = ranking(table, reading("acc"))
    assert [first.label, second.label, third.label] == ["hat", "ewc", "sgd"]
    assert first.test is None
    values = {
        m: [f.result["metrics"]["acc"] for f in made.findings if f.run.method == m and f.result] for m in ("hat", "ewc")
    }
    assert second.test is not None
    assert second.test.t == pytest.approx(stats.ttest_rel(values["ewc"], values["hat"]).pvalue)
    assert second.test.difference.mean == pytest.approx(np.mean(values["ewc"]) - np.mean(values["hat"]))
    assert third.test is not None
    assert third.test.difference.n == 2  # the seeds that both have
