"""The search for settings: Optuna's TPE over a method's declared ranges, by validation accuracy alone.

All trials are in one journal, which only this process writes; workers compute. A search that was stopped goes on:
trials that were under way are tried again. A trial is given up when, after some task in the second half of its sequence
or later, it is below the median of what earlier trials had reached there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from hatrack import atomic
from hatrack.errors import HatrackError
from hatrack.measure import scale
from hatrack.methods.hyper import Hyper
from hatrack.registry import short
from hatrack.runs import toml
from hatrack.runs.folder import held
from hatrack.runs.setup import new_net, sequence_of
from hatrack.runs.spec import Spec, resolve
from hatrack.studies.executor import default_workers, init_worker
from hatrack.studies.export import csv_text
from hatrack.studies.objective import Report, Trial, score, validation_only
from hatrack.studies.plan import TRAINING
from hatrack.studies.pool import Pool
from hatrack.studies.search_space import space, suggest, within

WARM_UP = 5
"""Trials that must be over before any is given up."""
FAILED = "failed"
"""Under this a trial that failed says why; one that was stopped, which Optuna calls failed too, says nothing."""


class TuneCallback(Protocol):
    """Hears of every trial that is over, and what is said during one."""

    def trial(
        self, done: int, trials: int, number: int, value: float | None, params: Mapping[str, Any], best: bool
    ) -> None:
        """Note a finished trial; without a value it was given up. `best`: of all in the journal so far."""

    def failed(self, number: int, reason: str) -> None:
        """Note a trial that failed."""

    def notice(self, number: int, line: str) -> None:
        """Note a line that the library says during a trial."""


@dataclass(frozen=True)
class Search:
    """What is tuned: run keys and fixed settings as `hatrack run` takes them, the seeds, how many trials."""

    given: Mapping[str, Any]
    fixed: Mapping[str, Any]
    seeds: Sequence[int]
    trials: int

    def spec(self, seed: int, chosen: Mapping[str, Any]) -> Spec:
        """Return the spec of a run with the chosen settings."""
        sets = {**self.fixed, **{f"method.{key}": value for key, value in chosen.items()}}
        return resolve({**self.given, "seed": seed}, list(sets.items()))


@dataclass(frozen=True)
class Best:
    """The best settings, their validation accuracy, and the study file that holds them."""

    settings: Mapping[str, Any]
    value: float
    file: Path


def tune(search: Search, out: Path, workers: int | None, callback: TuneCallback) -> Best:
    """Carry out what is left of a search in its folder, and write the study of the best."""
    _optuna()
    base = search.spec(search.seeds[0], {})
    explored = space(base.method, [key.removeprefix("method.") for key in search.fixed])
    journal = out / "journal.log"
    if any((out / name).exists() for name in ("spec.toml", "study.toml")):
        raise HatrackError(f"{str(out)!r} holds a run or a study; choose another --out.")
    if not journal.exists():
        _require_possible(base)
    with held(out, "search's"):
        _same_search(out / "search.json", base, search, explored)
        study = _opened(journal, base, explored)
        size = workers if workers is not None else default_workers(base.device)
        with atomic.naming(journal):
            _try_all(study, search, explored, size, callback)
        atomic.write(out / "trials.csv", _csv(study, list(explored)))
        return _best(study, search, base, out / f"best-{short(base.method)}-{short(base.benchmark)}.toml")


def _require_possible(base: Spec) -> None:
    """Raise what every trial would fail with, whatever it chooses, before anything is made."""
    tasks = [validation_only(task) for task in sequence_of(base)]
    scored = scale(task.target.facts() for task in tasks)
    if not (scored.alike and scored.larger_is_better):
        named = ", ".join(dict.fromkeys(task.target.judged().score for task in tasks))
        raise HatrackError(
            f"tuning goes by the mean of one score of which larger is better, and the tasks of {base.benchmark} are "
            f"scored by {named}: tune on tasks of one kind."
        )
    new_net(base, tasks[0].train.first(1).shape[1:])


def _same_search(file: Path, base: Spec, search: Search, explored: Mapping[str, Hyper]) -> None:
    """Refuse to mix two searches in one folder."""
    spec = base.model_dump(exclude={"device", "engine", "data", "seed"})
    text = json.dumps({"spec": spec, "seeds": list(search.seeds), "over": list(explored)}, indent=1)
    if file.exists() and file.read_bytes() != text.encode():
        raise HatrackError(f"{str(file.parent)!r} holds a search with other settings; choose another --out.")
    atomic.write(file, text)


def _optuna() -> Any:
    try:
        optuna = import_module("optuna")
    except ImportError:
        raise HatrackError("tuning needs Optuna: pip install 'hatrack[tune]'.") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _opened(journal: Path, base: Spec, explored: Mapping[str, Hyper]) -> Any:
    """Open the journal; trials that a killed process had under way are queued again, a new one starts with defaults."""
    optuna = _optuna()
    repair(journal)
    backend = import_module("optuna.storages.journal").JournalFileBackend(str(journal))
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(backend),
        study_name=f"{base.method} on {base.benchmark}",
        direction="maximize",
        load_if_exists=True,
    )
    if not study.trials and all(map(within, explored.values())):
        study.enqueue_trial({name: h.default for name, h in explored.items()})
    for stale in _trials(study, "RUNNING"):
        queued = [_fixed(trial) for trial in _trials(study, "WAITING")]
        chosen = _fixed(stale)
        # Queued first: a process killed between the two would lose it else, and here finds it twice.
        if set(chosen) == set(explored) and chosen not in queued:
            study.enqueue_trial(chosen)
        study.tell(stale.number, state=optuna.trial.TrialState.FAIL)
    return study


def repair(journal: Path) -> None:
    """Take away what a process killed in the middle of a write leaves; refuse what none can have written.

    Only for who holds the lock of the folder: nobody else writes then, so that a lock of Optuna's is a leftover.
    """
    # Optuna would wait for a lock, without end if the path is relative; one that it was giving up has a longer name.
    for left in journal.parent.glob(f"{journal.name}.lock*"):
        left.unlink()
    if not journal.exists():
        return
    content = journal.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):  # Optuna would append to the piece; the trial that it was about is tried again
        os.truncate(journal, whole)
    for number, line in enumerate(content[:whole].splitlines(), start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not (isinstance(record, dict) and "op_code" in record):
            raise HatrackError(
                f"{journal}, line {number}, is not a record of Optuna's (a JSON object with an op_code); remove the "
                f"line, or choose another --out."
            )


def _fixed(trial: Any) -> Any:
    """Return the settings of a trial: those it was queued with, of which it may not have asked for all yet."""
    return trial.system_attrs.get("fixed_params", trial.params)


def _try_all(study: Any, search: Search, explored: Mapping[str, Hyper], workers: int, callback: TuneCallback) -> None:
    optuna = _optuna()
    states = optuna.trial.TrialState
    asked: dict[int, Any] = {}

    def over() -> list[Any]:
        return _trials(study, "COMPLETE", "PRUNED")

    def drawn() -> Iterator[Trial]:
        while len(over()) + len(asked) < search.trials:
            # By what was tried, not by what was stopped: so a search that goes on draws what it would have drawn.
            tried = len(over()) + sum(FAILED in trial.user_attrs for trial in _trials(study, "FAIL"))
            study.sampler = optuna.samplers.TPESampler(seed=tried + len(asked), constant_liar=True)
            trial = study.ask()
            chosen = {name: suggest(trial, h) for name, h in explored.items()}
            asked[trial.number] = trial
            yield Trial(trial.number, [search.spec(seed, chosen) for seed in search.seeds])

    def hear(trial: Trial, report: Report | str) -> bool:
        if isinstance(report, str):
            callback.notice(trial.number, report)
            return False
        known = study.trials[trial.number].intermediate_values
        if report.step not in known:  # a worker that died and was replaced reports again
            asked[trial.number].report(report.value, report.step)
        return should_prune(report, [earlier.intermediate_values for earlier in over()])

    failures = 0
    for done in Pool(max(1, min(workers, search.trials)), init_worker).run(drawn(), score, hear):
        number = done.item.number
        trial = asked.pop(number)
        if done.reason is not None:
            failures += 1
            trial.set_user_attr(FAILED, done.reason)
            study.tell(trial, state=states.FAIL)
            callback.failed(number, done.reason)
            if failures >= WARM_UP and not over():
                raise HatrackError(f"the first {failures} trials all failed; the last one: {done.reason}")
            continue
        best = done.value is not None and all(done.value > t.value for t in _trials(study, "COMPLETE"))
        study.tell(trial, done.value, state=states.PRUNED if done.value is None else states.COMPLETE)
        callback.trial(len(over()), search.trials, number, done.value, trial.params, best)


def should_prune(report: Report, earlier: Sequence[Mapping[int, float]]) -> bool:
    """Say whether a trial is below the median of what earlier trials had reached at the same step."""
    reached = [values[report.step] for values in earlier if report.step in values]
    tellable = not report.early and len(earlier) >= WARM_UP and len(reached) > 1
    return tellable and report.value < median(reached)


def _trials(study: Any, *states: str) -> list[Any]:
    """Return the trials in one of these states (see optuna.trial.TrialState)."""
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.name in states]


def _best(study: Any, search: Search, base: Spec, file: Path) -> Best:
    if not _trials(study, "COMPLETE"):
        raise HatrackError("no trial was finished; ask for more --trials.")
    best = study.best_trial
    about = (
        f"Found by hatrack tune: trial {best.number} of {len(study.trials)}, average validation accuracy "
        f"{best.value:.4f} over seeds {', '.join(map(str, search.seeds))}. Test sets were not looked at."
    )
    named = {part: _for_a_study(base, part, file.parent) for part in ("method", "net", "benchmark")}
    run = {"net": named["net"]} | {key: getattr(base, key) for key in (*TRAINING, "precision")}
    settings = search.spec(search.seeds[0], best.params).settings
    document = {
        "title": f"{short(base.method)} on {short(base.benchmark)}, tuned",
        "notes": about,
        "seeds": list(search.seeds),
        "benchmarks": [named["benchmark"]],
        "methods": [named["method"]],
        "measures": ["acc", "forgetting"],
        "shared": {**run, **base.full_names("net", "benchmark")},
        "method": {short(base.method): settings},
    }
    atomic.write(file, toml.dumps(document))
    return Best(best.params, best.value, file)


def _for_a_study(base: Spec, part: str, home: Path) -> str:
    """Return the name of a method, a net or a benchmark as a study file in `home` names it."""
    name: str = getattr(base, part)
    path, _, attribute = base.found.get(part, name).rpartition(":")
    return f"{os.path.relpath(path, home.absolute())}:{attribute}" if path.endswith(".py") else name


def _csv(study: Any, names: Sequence[str]) -> str:
    lines = []
    for t in study.get_trials(deepcopy=False):
        # The value of a pruned trial is that of the moment when it was stopped, not of its end.
        value = t.value if t.state.name == "COMPLETE" else None
        lines.append([t.number, t.state.name.lower(), value, *map(t.params.get, names)])
    return csv_text(["number", "state", "validation_accuracy", *names], lines)
