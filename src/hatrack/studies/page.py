"""The study's report as one HTML page, in the style of a run's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hatrack import __version__
from hatrack.report.builder import Card, Head, Section, build, escape, how, left_out, table
from hatrack.report.words import DASH, counted, duration, number, size, whole
from hatrack.studies.across import page_section
from hatrack.studies.execute import Outcome
from hatrack.studies.order import order
from hatrack.studies.pictures import closer_looks, over_the_tasks, seed_by_seed
from hatrack.studies.ranking import lines, ranking
from hatrack.studies.table import Table, agreement, tables, verdicts

MARKS = {"within": "within ✓", "above": "above ↑", "below": "below ↓"}


def page(outcome: Outcome) -> str:
    """Return the whole report."""
    study, made = outcome.study, tables(outcome)
    counts = {"method": len(study.methods), "benchmark": len(study.benchmarks), "seed": len(study.seeds)}
    where = [study.source, *(counted(count, noun) for noun, count in counts.items())]
    head = Head("hatrack study report", study.title, where, _said(outcome, made), study.notes)
    sections = [
        Section("result", "Result", "".join(map(_result, made)) + page_section(outcome)),
        Section("seeds", "Seed by seed", seed_by_seed(outcome, made)),
        Section("tasks", "Over the tasks", over_the_tasks(outcome, made)),
        Section("ranking", "Ranking", "".join(map(_ranking, made))),
        *closer_looks(outcome, made),
        Section("cost", "Time and memory", "".join(map(_cost, made))),
        Section("runs", "Runs", _runs(outcome)),
        Section("file", "Study file", f'<pre class="how">{escape(study.text)}</pre>'),
    ]
    foot = f"Written by hatrack {__version__} from the folders of the study’s runs."
    return build(head, _cards(outcome, made), sections, foot)


def _said(outcome: Outcome, made: Sequence[Table]) -> str:
    """Say in words how the study went."""
    done = sum(f.result is not None for f in outcome.findings)
    text = f"{done} of {counted(len(outcome.findings), 'run')} finished."
    text = " ".join(part for part in (text, agreement(verdicts(made)), str(order(made))) if part)
    if outcome.diverged:
        text += f" Training diverged in {counted(len(outcome.diverged), 'run')}: see Runs."
    if outcome.study.changes:
        text += f" Changed from the study file: {'; '.join(outcome.study.changes)}."
    return text


def _cards(outcome: Outcome, made: Sequence[Table]) -> list[Card]:
    results = [f.result for f in outcome.findings if f.result is not None]
    failed = len(outcome.findings) - len(results)
    found = verdicts(made)
    devices = _devices(results)
    first = outcome.study.measures[0]
    figures = outcome.study.figures.values()
    band = "order and sign alone are compared" if figures else "the file gives no figures"
    band = "no value of ours beside the figures" if any(figure.band for figure in figures) else band
    band = "±2 deviations, or what the file allows" if found else band
    cards = [
        Card("Runs", f"{len(results)}", f"{failed} missing" if failed else "all finished", "bad" if failed else "good"),
        Card("Within the paper’s band", f"{found['within']} of {found.total()}" if found else DASH, band),
        Card("Time", duration(sum(r["seconds"] or 0 for r in results)), " · ".join(["all runs together", *devices])),
    ]
    for one in made[:5]:
        for best in ranking(one, first)[:1]:
            mean = number(best.mean, first.measure)
            cards.append(Card(f"Best on {one.benchmark}", best.label, f"{first.title} {mean}"))
    return cards


def _devices(results: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted({result["device"] for result in results if result["device"]})


def _result(made: Table) -> str:
    heads, *rows = (line[:-2] for line in made.lines())  # time and memory have a table of their own
    rows = [[label, *(MARKS.get(cell, cell or DASH).replace("-", "−") for cell in cells)] for label, *cells in rows]
    told = "; ".join(f"{m.text}: {m.title}" for m in made.measures)
    body = table("tasks", ["Method", "Seeds", *heads[2:]], rows, numbers=len(heads) - 1)
    return f"<h3>{escape(made.benchmark)}</h3>{body}{how(f'Mean ± standard deviation over seeds. {told}.')}"


def _ranking(made: Table) -> str:
    measure = made.measures[0]
    places = ranking(made, measure)
    heading = f"<h3>{escape(made.benchmark)}, by {escape(measure.title)}</h3>"
    if not places:
        return heading + left_out(f"No run has a value of {measure.text} yet.")
    rows = [[label, *((cell or DASH).replace("-", "−") for cell in cells)] for label, *cells in lines(places, measure)]
    heads = ["Method", "Mean", "Seeds", "To the first", "95 %", "p, paired t", "p, Wilcoxon"]
    told = (
        "Each method against the first, seed by seed: the mean difference with its 95 % interval, and two-sided tests. "
        "The p-values are not corrected for the number of comparisons. With n seeds Wilcoxon’s cannot fall below 2/2ⁿ. "
        "There is no t of a difference that is the same on all seeds."
    )
    return heading + table("tasks", heads, rows, numbers=6) + how(told)


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
    told = (
        "Parameters: all that the tasks are answered with, networks and columns of earlier tasks included, masks not. "
        "Peak memory: on a GPU what tensors held at most while a run went on, those of all runs side by side with it "
        "included; on a CPU the process (with torch itself). Runs side by side share the machine, so times compare "
        "only within a study."
    )
    return f"<h3>{escape(made.benchmark)}</h3>" + table("tasks", heads, rows, numbers=4) + how(told)


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
