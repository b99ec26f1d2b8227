"""One case: a command is killed at moments drawn from the seed, goes on, and what it leaves is compared."""

from __future__ import annotations

import random
import shutil
import signal
import time
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

from tests.storm import compare
from tests.storm.processes import LIMIT, Forked, Fresh, Process, is_rays, send, strays, workers
from tests.storm.scenarios import Scenario, Words

STARTED_AFRESH = 1 / 3  # of the commands that could be forked, so many are the real thing from the very start
LINGER = 30.0  # seconds that workers have to notice that their parent is dead


@dataclass(frozen=True)
class Reference:
    """A scenario undisturbed: what stood there before, what it left, what `verify` said of it.

    `seconds` and `steps` (on files, one number a process): of the real command (True) and of a forked one.
    """

    start: Path
    home: Path
    content: compare.Content
    verdicts: dict[str, tuple[int, str]]
    seconds: dict[bool, float]
    steps: dict[bool, list[int]]


@dataclass
class Kill:
    """One kill that met a living process."""

    moment: str
    how: str
    fresh: bool
    command: str


@dataclass
class Outcome:
    """What came of a case; without problems its folder is gone."""

    name: str
    scenario: str
    place: Path
    kills: list[Kill] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    left_behind: bool = False
    rays: int = 0  # processes of a cluster that outlived its killed driver


class Player:
    """Carries out scenarios in folders below `work`, with a server of its own."""

    def __init__(self, work: Path, seed: int) -> None:
        self._work, self._seed = work, seed
        self._ways = {True: Fresh(work), False: Forked(work)}
        self._server: Forked = self._ways[False]

    def close(self) -> None:
        """End the server."""
        self._server.close()

    def reference(self, scenario: Scenario) -> Reference:
        """Carry a scenario out undisturbed, in every way of starting it: all must leave the same."""
        place = self._work / "references" / scenario.name.replace(" ", "-")
        start = place / "start"
        start.mkdir(parents=True)
        for name, text in scenario.files.items():
            (start / name).write_text(text)
        for words in scenario.before:
            self._undisturbed(False, words, start, place, {})
        homes = [place / "home", place / "control"]
        seconds, steps = {}, {}
        for fresh, home in zip((True, scenario.several), homes, strict=True):
            counts = place / f"steps-{home.name}"
            counts.mkdir()
            shutil.copytree(start, home)
            extra = {"STORM_WATCHED": str(home / scenario.watched), "STORM_COUNTS": str(counts)}
            seconds[fresh] = self._all(fresh, scenario, home, place, extra)
            steps[fresh] = sorted(file.stat().st_size for file in counts.iterdir())
        content, control = map(compare.read, homes)
        # What differs of itself is no fault of a kill.
        _require_none(scenario, compare.compare(content, control, scenario.keeps))
        if scenario.keeps:
            _require_none(scenario, compare.compare(compare.read(start), content, strict=True))
        return Reference(start, homes[0], content, self._verdicts(homes[0], place), seconds, steps)

    def play(self, scenario: Scenario, number: int, reference: Reference) -> Outcome:
        """Play the case of that number; it is the same for the same seed, but for the machine's own timing."""
        place = self._work / "cases" / f"{scenario.name.replace(' ', '-')}-{number}"
        outcome = Outcome(f"{scenario.name}#{number}", scenario.name, place)
        home = place / "home"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        shutil.copytree(reference.start, home)
        draw = random.Random(f"{self._seed} {outcome.name}")
        rounds, done = draw.choice((1, 2, 3, 4)), 0
        while (words := scenario.again(home, done)) is not None:
            # One that goes on has less to do: its moments are drawn from a part of the whole.
            part = draw.random() if outcome.kills else scenario.part
            blow = Blow(scenario, reference, draw, part) if rounds > 0 else None
            rounds -= 1
            code = self._struck(scenario, home, place, words, blow, outcome)
            if code == 0:
                done += 1
            elif code is not None:
                outcome.problems.append(f"hatrack {' '.join(words)} ended with {code}: {_last_line(place / 'log')}")
            if outcome.problems:
                break
            if scenario.keeps:
                found = compare.compare(reference.content, compare.read(home), strict=True)
                outcome.problems += found.lines()
        else:
            self._judge(scenario, home, place, reference, outcome)
        stray = _linger(str(home))
        ours = {pid: what for pid, what in stray.items() if not is_rays(what)}
        outcome.rays = len(stray) - len(ours)
        outcome.problems += [f"process {pid} was left running: {what[:120]}" for pid, what in ours.items()]
        outcome.left_behind = outcome.left_behind or bool(ours)
        for pid in stray:
            send(pid, signal.SIGKILL)
        if not outcome.problems:
            shutil.rmtree(place)
        return outcome

    def _struck(
        self, scenario: Scenario, home: Path, place: Path, words: Words, blow: Blow | None, outcome: Outcome
    ) -> int | None:
        """Give a command, with a blow if there is one; return its exit code, None where the blow ended it."""
        fresh = scenario.several if blow is None else blow.fresh
        fired = place / "fired"
        fired.unlink(missing_ok=True)
        before = _learned(home)
        extra = _marks(home, place) | (blow.steps(home / scenario.watched, fired) if blow else {})
        process = self._ways[fresh].start(words, home, extra, place / "log")
        if blow is not None:
            blow.strike(process)
        code = process.wait(LIMIT)
        if code is None:
            outcome.problems.append(f"hatrack {' '.join(words)} hangs: nothing after {LIMIT:.0f} s")
            for pid in [*strays(str(home)), process.pid]:
                send(pid, signal.SIGKILL)
            return process.wait(LIMIT)
        if blow is None or not blow.met(code, fired.exists()):
            return code
        outcome.kills.append(Kill(blow.moment(home, before), blow.how, fresh, words[0]))
        return None if code in blow.codes else code

    def _judge(self, scenario: Scenario, home: Path, place: Path, reference: Reference, outcome: Outcome) -> None:
        """Compare what stands there now with the reference, and what `verify` says of it."""
        ended = compare.read(home)  # before `verify`, which sweeps a run's folder
        found = compare.compare(reference.content, ended, scenario.keeps)
        outcome.left_behind = bool(found.left)
        verdicts = self._verdicts(home, place)
        outcome.problems += found.lines()
        outcome.problems += [
            f"verify {run} said {verdicts.get(run)}, of the reference {verdict}"
            for run, verdict in reference.verdicts.items()
            if verdicts.get(run) != verdict
        ]
        if not found.left:
            changed = compare.compare(ended, compare.read(home), strict=True)
            outcome.problems += [f"{line} after verify" for line in changed.lines()]

    def _all(self, fresh: bool, scenario: Scenario, home: Path, place: Path, extra: dict[str, str]) -> float:
        """Carry a scenario out undisturbed; return how long it took."""
        began, done = time.monotonic(), 0
        while (words := scenario.again(home, done)) is not None:
            self._undisturbed(fresh, words, home, place, extra)
            done += 1
        return time.monotonic() - began

    def _undisturbed(self, fresh: bool, words: Words, home: Path, place: Path, extra: dict[str, str]) -> None:
        process = self._ways[fresh].start(words, home, _marks(home, place) | extra, place / "log")
        if (code := process.wait(LIMIT)) != 0:
            raise SystemExit(f"storm: hatrack {' '.join(words)} ended with {code}: {_last_line(place / 'log')}")

    def _verdicts(self, home: Path, place: Path) -> dict[str, tuple[int, str]]:
        """Return the exit code and the words of `verify` for every run below a folder."""
        said = {}
        for spec in sorted(home.rglob("spec.toml")):
            run, log = str(spec.parent.relative_to(home)), place / "verify.log"
            log.unlink(missing_ok=True)
            code = self._ways[False].start(["verify", run], home, _marks(home, place), log).wait(LIMIT)
            said[run] = (99 if code is None else code, log.read_text())
        return said


class Blow:
    """When, how and where a kill falls, drawn beforehand."""

    def __init__(self, scenario: Scenario, reference: Reference, draw: random.Random, part: float) -> None:
        self.fresh = scenario.several or draw.random() < STARTED_AFRESH
        self._scenario, self._draw = scenario, draw
        self._at = draw.uniform(0, part * reference.seconds[self.fresh])
        self._signal = draw.choices((signal.SIGKILL, signal.SIGTERM, signal.SIGINT), (70, 15, 15))[0]
        self._worker = scenario.several and draw.random() < 0.4
        self._step = _step(draw, ceil(part * draw.choice(reference.steps[self.fresh]))) if draw.random() < 0.4 else 0
        # Where a worker dies by the timer, nobody could tell whether it did.
        self._delay = 0.0 if scenario.several or draw.random() < 0.5 else 10 ** draw.uniform(-5, -2)
        self._sent_to: int | None = None

    @property
    def how(self) -> str:
        """The signal's name."""
        return "SIGKILL" if self._step or self._worker else self._signal.name

    @property
    def codes(self) -> set[int]:
        """The exit codes of a command that this blow ended; SIGALRM is the timer's."""
        if self.how == "SIGKILL":
            return {-signal.SIGKILL, -signal.SIGALRM}
        if self._signal == signal.SIGINT:
            return {-signal.SIGINT, 130}
        # Ray has handlers of its own: which one it is, and so the exit code, depends on how far it has come.
        rays = {1, int(signal.SIGTERM), -signal.SIGABRT} if self._scenario.kind == "ray" else set()
        return {-signal.SIGTERM} | rays

    def steps(self, watched: Path, fired: Path) -> dict[str, str]:
        """Return what makes a process kill itself at a step, if that is what this blow is."""
        if not self._step:
            return {}
        told = {"WATCHED": watched, "FIRED": fired, "STEP": self._step, "DELAY": self._delay}
        return {f"STORM_{key}": str(value) for key, value in told.items()}

    def strike(self, process: Process) -> None:
        """Wait for the moment and strike, if it is a moment and not a step."""
        if self._step or process.wait(self._at) is not None:
            return
        found = workers(process.pid) if self._scenario.several else []
        self._worker = self._worker and bool(found)
        self._sent_to = self._draw.choice(found) if self._worker else process.pid
        send(self._sent_to, signal.SIGKILL if self._worker else self._signal)
        if not self._worker and self._signal == signal.SIGKILL and self._draw.random() < 0.5:
            for worker in found:  # all at once, as when the machine goes down
                send(worker, signal.SIGKILL)

    def met(self, code: int, fired: bool) -> bool:
        """Say whether it met somebody alive, given the command's exit code and whether a process came to the step."""
        if self._step:
            return fired and (code != 0 or self._scenario.several)
        return self._sent_to is not None and (code != 0 or self._worker)

    def moment(self, home: Path, before: int) -> str:
        """Name the moment of the kill by what stands there after it."""
        kind = self._scenario.kind
        cached = [entry.name for entry in home.glob("cache/decoded/*")]
        if kind not in ("run", "cache") or (cached and all(name.startswith(".") for name in cached)):
            return f"hatrack {kind}" if kind in ("report", "verify") else kind
        if self._step:
            return "while writing"
        if any(home.rglob("result.json")):
            return "in report"
        return "in training" if _learned(home) > before else "in start-up"


def _step(draw: random.Random, steps: int) -> int:
    """Draw a step; half of the draws among the first or last few, where a folder comes into being or is finished."""
    first, last = draw.choice(((1, steps), (1, steps), (1, 10), (steps - 15, steps)))
    return draw.randint(max(first, 1), min(last, steps))


def _marks(home: Path, place: Path) -> dict[str, str]:
    """Return what every process of a case has in its environment: by the first, strays are found."""
    return {"STORM_CASE": str(home), "HATRACK_CACHE": str(home / "cache")}


def _learned(home: Path) -> int:
    return sum(file.stat().st_size for file in home.rglob("metrics.jsonl"))


def _linger(mark: str) -> dict[int, str]:
    """Return what still runs of a case after a while."""
    until = time.monotonic() + LINGER
    while (found := strays(mark)) and time.monotonic() < until:
        time.sleep(0.1)
    return found


def _require_none(scenario: Scenario, found: compare.Differences) -> None:
    if found:
        raise SystemExit(f"storm: {scenario.name} differs without a kill: {'; '.join(found.lines())}")


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return next((line for line in reversed(lines) if line.strip()), "")
