"""Open registries: four ways to name a thing, what is refused and recorded, and that look-ups import nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import hatrack
from foreign import TEXT, file, installed
from hatrack.data.benchmarks import Benchmark
from hatrack.errors import HatrackError, HatrackWarning
from hatrack.measure import MEASURES, reading, summary
from hatrack.methods.hat import HAT
from hatrack.registry import Registry, said, short
from hatrack.runs.accepted import REGISTRIES, of_benchmark, of_method, of_net
from hatrack.show import lists

ENTRIES = """
[hatrack.methods]
mine = {0}:Mine
[hatrack.nets]
half = {0}:make_net
[hatrack.benchmarks]
halves = {0}:make_tasks
"""
NAMES = {"method": ("Mine", "mine"), "net": ("make_net", "half"), "benchmark": ("make_tasks", "halves")}
DIGEST = sha256(TEXT.encode()).hexdigest()


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every test begin where nothing was named, in a folder of its own that modules are found in."""
    for registry in (*REGISTRIES.values(), MEASURES):
        monkeypatch.setattr(registry, "_named", {})
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def use(kind: str, name: str, reference: str) -> None:
    """Do with a thing what a run does, and what a user does in Python."""
    if kind == "method":
        assert REGISTRIES[kind][name](pull=0.25).facts() == {"pull": 0.25}
        assert of_method(name)["pull"].default == 0.5
    elif kind == "net":
        assert isinstance(hatrack.nets.build(reference, (4,), width=3), nn.Module)
        assert (of_net(name)["width"].type, of_net(name)["width"].default) == (int, 6)
    else:
        assert [task.name for task in hatrack.tasks(reference, seed=1, count=3)] == ["half 0", "half 1", "half 2"]
        assert of_benchmark(name)["count"].default == 2


# ---- the ways to name a thing


@pytest.mark.parametrize("kind", REGISTRIES)
def test_a_file(kind: str, tmp_path: Path) -> None:
    file(tmp_path / "deep")
    thing, registry = NAMES[kind][0], REGISTRIES[kind]
    reference = f"deep/mine.py:{thing}"
    name = registry.named(reference)
    assert name == f"mine.py:{thing}"
    assert short(name) == thing
    assert registry.code(name) == f"mine.py:{thing} sha256:{DIGEST}"
    assert registry.reference(name) == f"{tmp_path}/deep/mine.py:{thing}"
    assert name in registry
    assert name not in list(registry)
    use(kind, name, reference)


@pytest.mark.parametrize("kind", REGISTRIES)
def test_a_module(kind: str, tmp_path: Path) -> None:
    file(tmp_path / "site", "loose.py")
    name = f"loose:{NAMES[kind][0]}"
    assert REGISTRIES[kind].named(name) == REGISTRIES[kind].reference(name) == name
    assert REGISTRIES[kind].code(name) == f"{name} sha256:{DIGEST}"
    use(kind, name, name)


@pytest.mark.parametrize("kind", REGISTRIES)
def test_what_an_installed_package_offers(kind: str, tmp_path: Path) -> None:
    installed(tmp_path / "site", "offering", ENTRIES.format("offering"))
    thing, name = NAMES[kind]
    registry = REGISTRIES[kind]
    assert name in registry
    assert list(registry) == [*registry.own, name]
    assert "offering" not in sys.modules
    assert registry.named(name) == name
    assert registry.code(name) == "offering 1.2"
    use(kind, name, name)
    module = registry.named(f"offering:{thing}")
    assert registry.code(module) == f"offering:{thing} offering 1.2"


def test_what_is_installed_to_be_edited_is_known_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path / "site", "edited", "")
    monkeypatch.syspath_prepend(str(tmp_path / "source"))
    file(tmp_path / "source", "edited.py", TEXT + "\n")
    name = REGISTRIES["method"].named("edited:Mine")
    assert REGISTRIES["method"].code(name) == f"edited:Mine sha256:{sha256((TEXT + chr(10)).encode()).hexdigest()}"


def test_hatracks_own_is_own_however_it_is_named() -> None:
    methods = REGISTRIES["method"]
    assert methods.named("hatrack.methods.hat:HAT") == methods.named("hat") == "hat"
    assert methods["hat"] is HAT
    assert methods.code("hat") is None
    assert methods.get("hut") is None
    assert len(methods) == len(list(methods)) == len(methods.own)


def test_a_class_of_modules_is_a_net_that_needs_no_shape(tmp_path: Path) -> None:
    file(tmp_path)
    assert hatrack.nets.build("mine.py:Net", (1, 2, 2), width=3).layer.out_features == 3
    assert hatrack.nets.options("mine.py:Net") == {"width": 6}


def test_a_measure_is_a_record_under_the_name_that_it_has_here(tmp_path: Path) -> None:
    installed(
        tmp_path / "site", "measuring", ENTRIES.format("measuring") + "[hatrack.measures]\nbest = measuring:best\n"
    )
    file(tmp_path)
    result = {"accuracy": [[0.5], [0.25, 0.75]], "metrics": {}, "tasks": [{}, {}]}
    for reference, name in (("mine.py:best", "mine.py:best"), ("measuring:best", "measuring:best"), ("best", "best")):
        assert MEASURES.named(reference) == name
        assert MEASURES[name].forms == [name, f"{name}@t"]
        assert reading(name).value(result) == 0.75
        assert reading(f"{name}@1").value(result) == 0.5
    assert "best" not in summary([[1.0]])  # only hatrack's own are stored
    assert next(e["summary"] for e in lists.entries("measures") if e["name"] == "best").startswith("best task: ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("best = 3", "measure 'best' of bad 1.2 must be a record, hatrack.measure.Measure"),
        ("best = Measure('b', 'b', 'b', max, stored='end')", "only hatrack's own measures stand in result.json"),
        ("best = Measure('b', 'b', 'b', max, needs=('ewc',))", "unknown reference run of measure 'best' .*'ewc'"),
    ],
)
def test_what_is_no_measure_is_a_line(text: str, says: str, tmp_path: Path) -> None:
    text = f"from hatrack.measure import Measure\n{text}\n"
    installed(tmp_path / "site", "bad", "[hatrack.measures]\nbest = bad:best\n", text=text)
    with pytest.raises(HatrackError, match=says):
        MEASURES.named("best")


def test_a_record_is_a_benchmark_with_defaults(tmp_path: Path) -> None:
    more = (
        '\nfrom hatrack.data import Benchmark\nRECORD = Benchmark("three", "", make_tasks, {"epochs": 2}, {"count": 3})'
    )
    file(tmp_path, text=TEXT + more)
    name = REGISTRIES["benchmark"].named("mine.py:RECORD")
    assert isinstance(REGISTRIES["benchmark"][name], Benchmark)
    assert "count" not in of_benchmark(name)
    assert len(hatrack.tasks("mine.py:RECORD")) == 3


def test_files_are_looked_for_from_a_home(tmp_path: Path) -> None:
    file(tmp_path / "home")
    assert REGISTRIES["method"].named("mine.py:Mine", tmp_path / "home") == "mine.py:Mine"


# ---- what is refused

METHOD = "from hatrack.methods.base import Method\nfrom hatrack.methods.sgd import SGD\n"
HYPER = f"{METHOD}from dataclasses import dataclass\nfrom hatrack.methods.hyper import hyper\n"


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("method", None, "'.*x.py' cannot be read .No such file or directory."),
        ("method", "", "unknown name in x.py: 'Thing'"),
        ("method", "class Think: pass", "unknown name in x.py: 'Thing'; did you mean 'Think'"),
        ("method", "x = (", r"x.py cannot be imported .SyntaxError: '.' was never closed"),
        ("method", "\nraise SystemExit(3)", "x.py cannot be imported .SystemExit: SystemExit 3, line 2.."),
        (
            "method",
            "import nowhere",
            "x.py cannot be imported .ModuleNotFoundError: No module named 'nowhere', line 1..",
        ),
        ("method", "Thing = 3", "x.py:Thing must be a class that subclasses hatrack.methods.base.Method, got 3."),
        ("method", f"{METHOD}class Thing(Method): pass", "x.py:Thing does not say its name; write name: ClassVar.str."),
        ("method", f"{METHOD}class Thing(SGD): pass", "x.py:Thing calls itself 'sgd', which is hatrack's own"),
        (
            "method",
            f"{HYPER}class Thing(SGD):\n    name = 'thing'\n    a: float = hyper(1.0, '')",
            "x.py:Thing: 'a' is a setting only of a dataclass",
        ),
        (
            "method",
            f"{HYPER}@dataclass\nclass Thing(SGD):\n    name = 'thing'\n    a = hyper(1.0, '')",
            "x.py cannot be imported .TypeError: 'a' is a field but has no type annotation, line 5..",
        ),
        (
            "method",
            f"{HYPER}@dataclass\nclass Thing(SGD):\n    name = 'thing'\n    a: 'float | None' = hyper(None, '')",
            "x.py:Thing cannot be made with its defaults .setting 'a' must be of one type, such as float, got",
        ),
        (
            "method",
            f"{HYPER}@dataclass\nclass Thing(SGD):\n    name = 'thing'\n    a: float = hyper('high', '')",
            "x.py:Thing cannot be made with its defaults .thing: a must be of type float, got 'high'",
        ),
        ("net", "Thing = 3", "x.py:Thing must be a function that makes a network, or a torch module, got 3."),
        ("net", "class Thing: pass", "x.py:Thing must be a function that makes a network"),
        ("net", "import torch\nThing = torch.nn.ReLU()", "x.py:Thing is a network already; give the function"),
        ("net", "def Thing(shape, width=3): pass", "x.py:Thing: option 'width' has no annotation; write its type"),
        ("net", "def Thing(a: 'Nothing' = 3): pass", "x.py:Thing: what it takes cannot be read .name 'Nothing' is not"),
        ("net", "def Thing(a: object = print): pass", "x.py:Thing: the default of option 'a' must be a number"),
        ("benchmark", "Thing = 3", "x.py:Thing must be a function .seed, …. → list of hatrack.Task, got 3."),
        ("benchmark", "def Thing(count: int = 3): pass", "x.py:Thing must take seed"),
        ("benchmark", "def Thing(seed, count=3): pass", "x.py:Thing: option 'count' has no annotation"),
    ],
)
def test_every_mistake_is_one_line(kind: str, text: str | None, says: str, tmp_path: Path) -> None:
    if text is not None:
        file(tmp_path, "x.py", text)
    with pytest.raises(HatrackError, match=says) as caught:
        REGISTRIES[kind].named("x.py:Thing")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        (":Mine", "method ':Mine' is not understood; give a name .hatrack list methods., package.module:Name or file"),
        ("mine.py:", "method 'mine.py:' is not understood"),
        ("mine.py:a b", "method 'mine.py:a b' is not understood"),
        (
            "mine:Mine",
            "mine cannot be imported .ModuleNotFoundError: .*; a file is named with its .py, as file.py:Name",
        ),
        ("hatt", "unknown method 'hatt'; did you mean 'hat'?"),
    ],
)
def test_a_reference_that_is_none(reference: str, says: str) -> None:
    with pytest.raises(HatrackError, match=says):
        REGISTRIES["method"].named(reference)


def test_what_is_made_must_be_what_it_says(tmp_path: Path) -> None:
    file(tmp_path, "x.py", "def thing(seed: int = 0): return [3]")
    with pytest.raises(HatrackError, match=r"net 'x.py:thing' must return a torch module, got \[3\]"):
        hatrack.nets.build("x.py:thing", (4,))
    with pytest.raises(HatrackError, match=r"benchmark 'x.py:thing' must return a list of hatrack.Task, got \[3\]"):
        hatrack.tasks("x.py:thing")


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    file(tmp_path / "a"), file(tmp_path / "b"), file(tmp_path / "c", text=TEXT + "\n")
    for folder in ("a", "b"):  # the same code
        REGISTRIES["method"].named(f"{folder}/mine.py:Mine")
    with pytest.raises(HatrackError, match=r"b/mine.py:Mine' and '.*c/mine.py:Mine' are different code of one name"):
        REGISTRIES["method"].named("c/mine.py:Mine")


# ---- installed packages


def offer(tmp_path: Path, package: str, entries: str, **more: Any) -> None:
    installed(tmp_path / "site", package, f"[hatrack.methods]\n{entries}", **more)


def test_hatracks_own_name_wins_and_the_clash_is_said(tmp_path: Path) -> None:
    offer(tmp_path, "clashing", "hat = clashing:Mine")
    with pytest.warns(HatrackWarning, match="^clashing 1.2 offers method 'hat'; hatrack's own of that name is used.$"):
        assert REGISTRIES["method"].named("hat") == "hat"
    assert REGISTRIES["method"]["hat"] is HAT


def test_two_packages_with_one_name(tmp_path: Path) -> None:
    offer(tmp_path, "one_of", "mine = one_of:Mine")
    offer(tmp_path, "other_of", "mine = other_of:Mine")
    with pytest.raises(HatrackError, match=r"of 1.2 and .*of 1.2 offer method 'mine'; name it as package.module:Name"):
        REGISTRIES["method"].named("mine")


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("theirs = p:Mine", "method 'theirs' of p 1.2 calls itself 'mine'; offer it under the name"),
        ("theirs = p:Nothing", "method 'theirs' of p 1.2 cannot be imported .AttributeError: "),
        ("theirs = p:make_net", "method 'theirs' of p 1.2 must be a class that subclasses"),
    ],
)
def test_what_does_not_fit_is_a_line_and_leaves_the_list_whole(entry: str, says: str, tmp_path: Path) -> None:
    offer(tmp_path, "p", entry)
    with pytest.raises(HatrackError, match=says):
        REGISTRIES["method"].named("theirs")
    listed = {entry["name"]: entry["summary"] for entry in lists.entries("methods")}
    assert says.split(" of ")[0] in listed["theirs"]
    assert "hat" in listed
    assert "theirs" in lists.text("methods", 80)


def test_the_list_shows_what_packages_offer(tmp_path: Path) -> None:
    installed(tmp_path / "site", "shown", ENTRIES.format("shown"))
    for kind, (_, name) in NAMES.items():
        [entry] = [entry for entry in lists.entries(f"{kind}s") if entry["name"] == name]
        assert entry["summary"]
        assert entry["settings"]


# ---- what was recorded, and the word of the user


def test_code_that_was_recorded_must_be_what_it_was(tmp_path: Path) -> None:
    methods: Registry[Any] = REGISTRIES["method"]
    name = methods.named(f"{file(tmp_path)}:Mine")
    recorded = methods.code(name)
    methods.agree(name, recorded)
    methods.agree(name, None)
    file(tmp_path, text=TEXT + "\n")
    old = methods[name]
    methods.agree(name, recorded)  # what was named stays what it was
    methods.named("mine.py:Mine")
    assert methods[name] is not old
    assert methods.code_of(old) == recorded
    with pytest.raises(HatrackError, match=rf"was {said(recorded or '')} and is mine.py:Mine sha256:\w+ now; give"):
        methods.agree(name, recorded)


def test_another_version_of_a_package_is_said(tmp_path: Path) -> None:
    offer(tmp_path, "grown", "mine = grown:Mine", version="2.0")
    methods = REGISTRIES["method"]
    with pytest.warns(HatrackWarning, match="method 'mine' was grown 1.2 and is grown 2.0 now"):
        methods.agree("mine", "grown 1.2")
    with pytest.raises(HatrackError, match=r"method 'mine' was another 1.2 and is grown 2.0 now"):
        methods.agree("mine", "another 1.2")
    with pytest.raises(HatrackError, match=r"method 'gone' is needed as gone 1.2 offers it, which is not installed"):
        methods.agree("gone", "gone 1.2")
    with pytest.raises(HatrackError, match=r"method 'hat' was gone 1.2 and is hatrack's own now"):
        methods.agree("hat", "gone 1.2")


@pytest.mark.parametrize("kind", REGISTRIES)
def test_looking_up_imports_nothing(kind: str, tmp_path: Path) -> None:
    file(tmp_path, "trap.py", "raise SystemExit('sprung')")
    file(tmp_path / "site", "trapped.py", "raise SystemExit('sprung')")
    for name in ("trap.py:Mine", "trapped:Mine"):
        assert name not in REGISTRIES[kind]
        with pytest.raises(KeyError):
            REGISTRIES[kind][name]
        with pytest.raises(HatrackError, match=f"{kind} '{name}' is code, which is taken only where a user names it"):
            REGISTRIES[kind].find(name)


def test_a_sequence_that_lists_code_is_refused(tmp_path: Path) -> None:
    file(tmp_path, "trap.py", "raise SystemExit('sprung')")
    (tmp_path / "mine.toml").write_text('[[task]]\nbenchmark = "trap.py:make"\n')
    with pytest.raises(HatrackError, match=r"benchmark 'trap.py:make' is code, which is taken only where a user names"):
        hatrack.tasks("sequence", file="mine.toml")


def test_it_needs_no_torch() -> None:
    code = "import sys, hatrack.registry; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
