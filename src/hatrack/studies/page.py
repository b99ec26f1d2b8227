"""The study's report as one HTML page, in the style of a run's."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hatrack import __version__
from hatrack.report.parts import (
    DASH,
    Card,
    Section,
    card_row,
    counted,
    document,
    duration,
    escape,
    figure,
    left_out,
    row,
    table,
    whole,
)
from hatrack.studies import plots
from hatrack.studies.carry import Outcome
from hatrack.studies.closer import closer_looks
from hatrack.studies.file import Study
from hatrack.studies.findings import Finding
from hatrack.studies.measures import Measure
from hatrack.studies.ranking import ranking
from hatrack.studies.table import Table, tables, verdicts
from hatrack.studies.words import agreement, chance, number, ours, size, theirs, title

LINES_AT_MOST = 20  # in one picture, before the points of a grid are left out
MARKS = {"within": "within ✓", "above": "above ↑", "below": "below ↓", "": DASH}


def page(outcome: Outcome) -> str:
    """Return the whole report."""
    study, made = outcome.study, tables(outcome)
    sections = [
        Section("result", "Result", "".join(map(_result, made))),
        Section("seeds", "Seed by seed", _points(made, study.measures)),
        Section("tasks", "Over the tasks", _over_tasks(made, study)),
        Section("ranking", "Ranking", "".join(map(_ranking, made))),
        *closer_looks(outcome, made),
        Section("cost", "Time and memory", "".join(map(_cost, made))),
        Section("runs", "Runs", _runs(outcome)),
        Section("file", "Study file", f'<pre class="how">{escape(study.text)}</pre>'),
    ]
    head = (
        '<header><p class="kind">hatrack study report</p>'
        f"<h1>{escape(study.title)}</h1>"
        f'<p class="where">{escape(_where(outcome))}</p><p class="said">{escape(_said(outcome, made))}</p>'
        + (f'<p class="how">{escape(study.notes)}</p>' if study.notes else "")
        + "</header>"
    )
    foot = f"<footer>Written by hatrack {escape(__version__)} from the folders of the study’s runs.</footer>"
    return document(study.title, head + _cards(outcome, made), sections, foot)


def _where(outcome: Outcome) -> str:
    study = outcome.study
    parts = [study.source, counted(len(study.methods), "method"), counted(len(study.benchmarks), "benchmark")]
    return " · ".join([part for part in parts if part] + [counted(len(study.seeds), "seed")])


def _said(outcome: Outcome, made: Sequence[Table]) -> str:
    """Say in words how the study went."""
    done = sum(f.result is not None for f in outcome.findings)
    text = f"{done} of {counted(len(outcome.findings), 'run')} finished."
    text = f"{text} {agreement(verdicts(made))}".rstrip()
    if outcome.diverged:
        text += f" Training diverged in {counted(len(outcome.diverged), 'run')}: see Runs."
    if outcome.study.changes:
        text += f" Changed from the study file: {'; '.join(outcome.study.changes)}."
    return text


def _cards(outcome: Outcome, made: Sequence[Table]) -> str:
    results = [f.result for f in outcome.findings if f.result is not None]
    failed = len(outcome.findings) - len(results)
    found = verdicts(made)
    devices = _devices(results)
    first = outcome.study.measures[0]
    best = [(t, ranking(t, first)) for t in made]
    cards = [
        Card("Runs", f"{len(results)}", f"{failed} missing" if failed else "all finished", "bad" if failed else "good"),
        Card(
            "Within the paper’s band",
            f"{found['within']} of {found.total()}" if found else DASH,
            _band_note(found, outcome.study),
        ),
        Card("Time", duration(sum(r["seconds"] or 0 for r in results)), " · ".join(["all runs together", *devices])),
    ]
    for table_, places in best[:5]:
        if places:
            mean = number(places[0].mean, first)
            cards.append(Card(f"Best on {table_.benchmark}", places[0].label, f"{title(first)} {mean}"))
    return card_row(cards)


def _devices(results: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted({result["device"] for result in results if result["device"]})


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _band_note(found: Counter[str], study: Study) -> str:
    if found:
        return "±2 deviations, or what the file allows"
    return "no value of ours beside the figures" if study.figures else "the file gives no figures"


def _result(made: Table) -> str:
    compared = [m for m in made.measures if any(r.cells[m.text].figure for r in made.rows)]
    heads = ["Method", "Seeds"]
    for measure in made.measures:
        heads += [measure.text, "paper", "band"] if measure in compared else [measure.text]
    rows = []
    for entry in made.rows:
        cells = [entry.label, f"{entry.finished} of {len(entry.findings)}" if entry.findings else "paper only"]
        for measure in made.measures:
            cell = entry.cells[measure.text]
            cells.append(ours(cell, measure).replace("-", "−"))
            cells += [theirs(cell).replace("-", "−"), MARKS[cell.verdict]] if measure in compared else []
        rows.append(cells)
    told = "; ".join(f"{m.text}: {title(m)}" for m in made.measures)
    how = f'<p class="how">Mean ± standard deviation over seeds. {escape(told)}.</p>'
    return f"<h3>{escape(made.benchmark)}</h3>" + table("tasks", heads, rows, numbers=len(heads) - 1) + how


def _points(made: Sequence[Table], measures: Sequence[Measure]) -> str:
    drawn = []
    for measure, t in ((m, t) for m in measures for t in made):
        cells = {r.label: r.cells[measure.text] for r in t.rows}
        if any(cell.values or cell.figure for cell in cells.values()):
            svg = plots.seed_points(f"{measure.text} on {t.benchmark}", cells, bounded=measure.bounded)
            caption = "Dot: a seed. Diamond: the mean with its 95 % interval."
            caption += " Orange: the paper’s figure and band." if any(cell.figure for cell in cells.values()) else ""
            drawn.append(figure(f"{_capital(title(measure))} on {t.benchmark}", svg, caption, half=True))
    return row(*drawn) if drawn else left_out("No run has a value yet.")


def _over_tasks(made: Sequence[Table], study: Study) -> str:
    grid = {m.label for m in study.methods if m.family}
    left = grid if len(study.methods) > LINES_AT_MOST else set()  # their map says more than a hundred lines
    parts = []
    for t in made:
        among = [r.label for r in t.ours() if r.label not in left]
        for what, take, skipped in (("Average accuracy", _accuracies, ()), ("ρ", _ratios, ("joint", "random"))):
            lines = {
                r.label: by_task
                for r in t.ours()
                if r.label not in left
                and not any(f.run.spec.method in skipped for f in r.findings)
                and (by_task := _by_task(r.findings, take))
            }
            if lines:
                svg = plots.over_tasks(f"{what} over tasks on {t.benchmark}", lines, among=among, zero=what == "ρ")
                told = (
                    "0: as good as joint training; −1: guessing." if what == "ρ" else "Over the tasks learned so far."
                )
                caption = f"{_drawn(lines)} {told}"
                parts.append(figure(f"{what} on {t.benchmark}", svg, caption, half=len(lines) <= 12))
    return row(*parts) if parts else left_out("There is no finished run of two tasks or more to draw.")


def _drawn(lines: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Say what the lines over tasks stand for, which depends on how many seeds there are."""
    counts = {len(values[0]) for values in lines.values()}
    if counts == {1}:
        return "One seed."
    shaded = ["shaded: 95 % interval"] if max(counts) >= plots.SHADED else []
    thin = ["thin: each seed"] if any(1 < count < plots.SHADED for count in counts) else []
    return "; ".join(["Mean over seeds", *shaded, *thin]) + "."


def _accuracies(result: Mapping[str, object]) -> Sequence[float | None]:
    rows = result["accuracy"]
    assert isinstance(rows, list)
    return [None if None in r else sum(r) / len(r) for r in rows]


def _ratios(result: Mapping[str, object]) -> Sequence[float | None]:
    metrics = result["metrics"]
    assert isinstance(metrics, dict)
    return metrics.get("rho_each") or []


def _by_task(findings: Sequence[Finding], take: object) -> list[list[float]]:
    """Return for each task the values of all seeds; nothing where the runs differ in length or have one task."""
    assert callable(take)
    series = [list(take(f.result)) for f in findings if f.result is not None]
    series = [s for s in series if s and all(v is not None and math.isfinite(v) for v in s)]
    if not series or len({len(s) for s in series}) > 1 or len(series[0]) < 2:
        return []
    return [list(values) for values in zip(*series, strict=True)]


def _ranking(made: Table) -> str:
    measure = made.measures[0]
    places = ranking(made, measure)
    heading = f"<h3>{escape(made.benchmark)}, by {escape(title(measure))}</h3>"
    if not places:
        return heading + left_out(f"No run has a value of {measure.text} yet.")
    rows = []
    for rank, place in enumerate(places, start=1):
        cells = [f"{rank} · {place.label}", number(place.mean, measure).replace("-", "−"), str(place.seeds)]
        if place.test is None:
            cells += [DASH] * 4
        else:
            gap = place.test.difference
            cells += [f"{gap.mean:+.4f}".replace("-", "−"), f"± {gap.half:.4f}"]
            cells += [chance(place.test.t), chance(place.test.wilcoxon)]
        rows.append(cells)
    heads = ["Method", "Mean", "Seeds", "To the first", "95 %", "p, paired t", "p, Wilcoxon"]
    how = (
        "Each method against the first, seed by seed: the mean difference with its 95 % interval, and two-sided tests. "
        "The p-values are not corrected for the number of comparisons. With n seeds Wilcoxon’s cannot fall below 2/2ⁿ. "
        "There is no t of a difference that is the same on all seeds."
    )
    return heading + table("tasks", heads, rows, numbers=6) + f'<p class="how">{escape(how)}</p>'


def _cost(made: Table) -> str:
    rows = []
    for r in made.ours():
        results = [f.result for f in r.findings if f.result is not None]
        parameters = [result["parameters"] for result in results if result["parameters"] is not None]
        devices = ", ".join(_devices(results)) or DASH
        ends = sorted({min(parameters), max(parameters)}) if parameters else []  # seeds differ where task orders do
        count = " to ".join(map(whole, ends)) or DASH
        rows.append([r.label, devices, count, duration(r.seconds), size(r.memory)])
    heads = ["Method", "Device", "Parameters", "Time a run", "Peak memory"]
    how = (
        "Parameters: all that the tasks are answered with, networks and columns of earlier tasks included, masks not. "
        "Peak memory: on a GPU what tensors held at most while a run went on, those of all runs side by side with it "
        "included; on a CPU the process (with torch itself). Runs side by side share the machine, so times compare "
        "only within a study."
    )
    body = table("tasks", heads, rows, numbers=4) + f'<p class="how">{escape(how)}</p>'
    return f"<h3>{escape(made.benchmark)}</h3>" + body


def _runs(outcome: Outcome) -> str:
    rows = []
    for f in outcome.findings:
        state = _finished(outcome, f.run.path) if f.result is not None else f.reason
        rows.append([f.run.path.name, f.run.benchmark, f.run.method, str(f.run.spec.seed), state])
    listed = {f.run.path for f in outcome.findings}
    others = {path: _finished(outcome, path) for path in outcome.diverged} | outcome.reasons
    rows += [[path.name, DASH, "reference", DASH, state] for path, state in others.items() if path not in listed]
    return table("tasks", ["Folder", "Benchmark", "Method", "Seed", "State"], rows, numbers=0)


def _finished(outcome: Outcome, path: Path) -> str:
    lost = outcome.diverged.get(path)
    return f"finished; training diverged in {lost}" if lost else "finished"
