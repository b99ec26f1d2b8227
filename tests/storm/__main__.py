"""Run the storm and print what came of it; exit code 1 where anything is different or left behind."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.storm.play import Outcome, Player, Reference
from tests.storm.processes import send, strays
from tests.storm.scenarios import MASKED, Scenario, scenarios

SHARES = {"run": 50, "cache": 12, "report": 8, "verify": 5, "study": 10, "tune": 8, "ray": 7}
"""Of a hundred kills, so many are of a kind; all scenarios of a kind get the same."""


class Storm:
    """Gives out cases until there were enough kills."""

    def __init__(self, all_scenarios: Sequence[Scenario], kills: int, case: int | None) -> None:
        kinds = Counter(scenario.kind for scenario in all_scenarios)
        self._weights = {s.name: SHARES[s.kind] / kinds[s.kind] for s in all_scenarios}
        self._scenarios, self._wanted, self._case = all_scenarios, kills, case
        self._started, self._under_way, self._killed = Counter[str](), Counter[str](), Counter[str]()
        self._lock = threading.Lock()
        self.outcomes: list[Outcome] = []
        self.kills = 0

    def next(self) -> tuple[Scenario, int] | None:
        """Return what is to be played now: of what has had least of its share; never two clusters at once."""
        with self._lock:
            if self._case is not None and self._started.total():
                return None
            if self.kills + sum(self._under_way.values()) >= self._wanted:
                return None
            free = [s for s in self._scenarios if not (s.kind == "ray" and self._under_way[s.name])]
            if not free:
                return None
            chosen = min(free, key=lambda s: (self._killed[s.name] + self._under_way[s.name]) / self._weights[s.name])
            self._under_way[chosen.name] += 1
            self._started[chosen.name] += 1
            return chosen, self._started[chosen.name] if self._case is None else self._case

    def over(self, scenario: Scenario, outcome: Outcome) -> None:
        """Take in what came of a case."""
        with self._lock:
            self._under_way[scenario.name] -= 1
            self._killed[scenario.name] += len(outcome.kills)
            self.kills += len(outcome.kills)
            self.outcomes.append(outcome)
            said = ", ".join(f"{k.command} {k.moment}{' (real)' if k.fresh else ''} {k.how}" for k in outcome.kills)
            print(f"[{self.kills}/{self._wanted}] {outcome.name}: {said or 'no kill'}", *outcome.problems, sep="\n    ")
            sys.stdout.flush()


def summary(outcomes: Sequence[Outcome], methods: int, seed: int, minutes: float) -> str:
    """Return the counts in two lines; a kill is byte-identical when its case is."""
    kills = [kill for outcome in outcomes for kill in outcome.kills]
    left = sum(len(outcome.kills) for outcome in outcomes if outcome.left_behind)
    different = sum(len(outcome.kills) for outcome in outcomes if outcome.problems and not outcome.left_behind)
    return (
        f"storm: {len(kills)} kills ({_counted(kill.moment for kill in kills)}) over {methods} masked methods in "
        f"{len(outcomes)} cases: {len(kills) - different - left} byte-identical, {different} different, {left} left "
        f"behind; seed {seed}, {minutes:.0f} min\n"
        f"storm: {_counted(kill.how for kill in kills)}; {sum(kill.fresh for kill in kills)} of the real command from "
        f"its start; {_counted(f'hatrack {kill.command}' for kill in kills)}; "
        f"{sum(outcome.rays for outcome in outcomes)} processes of Ray's own outlived a killed driver"
    )


def _counted(words: Iterable[str]) -> str:
    return ", ".join(f"{number} {word}" for word, number in Counter(words).most_common())


def chosen(only: str | None, all_scenarios: Sequence[Scenario]) -> tuple[list[Scenario], int | None]:
    """Return the scenarios meant by --only, and the number of a case."""
    name, _, number = (only or "").partition("#")
    found = [s for s in all_scenarios if s.name == name] or [s for s in all_scenarios if name in s.name and not number]
    if not found:
        raise SystemExit(f"storm: nothing is called {only!r}; there are: {', '.join(s.name for s in all_scenarios)}")
    return found, int(number) if number else None


def _end_all(work: Path) -> None:
    """Kill what the storm has started and what still runs, clusters included."""
    for pid in strays(str(work)):
        send(pid, signal.SIGKILL)


def main() -> int:
    """Parse, make the references, play the cases, sum up."""
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=2, help="cases side by side")
    parser.add_argument("--only", help="scenarios with this in their name, or one case, such as 'run hat#3'")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("storm: stopped"))
    began = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix="storm-"))
    print(f"storm: working in {work}", flush=True)
    found, case = chosen(given.only, scenarios(work))
    storm = Storm(found, given.kills, case)
    players = [Player(work, given.seed) for _ in range(given.jobs)]
    with ThreadPoolExecutor(given.jobs) as pool:
        references: dict[str, Reference] = {}
        todo = list(reversed(found))

        def refer(player: Player) -> None:
            while todo:
                scenario = todo.pop()
                references[scenario.name] = player.reference(scenario)

        def play(player: Player) -> None:
            while (drawn := storm.next()) is not None:
                scenario, number = drawn
                storm.over(scenario, player.play(scenario, number, references[scenario.name]))

        try:
            for work_of_all in (refer, play):
                for done in [pool.submit(work_of_all, player) for player in players]:
                    done.result()
                print(f"storm: {work_of_all.__name__} over after {time.monotonic() - began:.0f} s", flush=True)
        except BaseException:
            traceback.print_exc()
            _end_all(work)
            os._exit(1)  # not waiting for what other threads still have to do
    for player in players:
        player.close()
    _end_all(work)
    methods = sum(scenario.name.removeprefix("run ") in MASKED for scenario in found)
    print(summary(storm.outcomes, methods, given.seed, (time.monotonic() - began) / 60))
    bad = [outcome for outcome in storm.outcomes if outcome.problems]
    for outcome in bad:
        print(f"storm: {outcome.name} was kept: {outcome.place}; undisturbed: {references[outcome.scenario].home}")
    if not bad:
        shutil.rmtree(work)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
