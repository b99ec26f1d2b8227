"""Every recipe is a valid study, and the papers' figures in them are the papers'."""

from __future__ import annotations

from pathlib import Path

import pytest

from hatrack.cli import main
from hatrack.errors import HatrackError
from hatrack.methods.ucl import UCL
from hatrack.nets import build
from hatrack.runs.setup import sequence_of
from hatrack.runs.spec import resolve
from hatrack.show import lists
from hatrack.show.recipes import recipe
from hatrack.studies import cost, recipes
from hatrack.studies.plan import Places, plan

ASKED = {
    "hat-table1", "hat-fig4", "hat-fig5-6", "hat-fig7", "hat-cifar", "hat-permuted-mnist", "hat-mnist2",
    "pmask-table1", "pmask-table2", "resnet18", "fisher-mask",
    "spg-tables2-4", "spg-tables5-7", "spg-table6", "spg-table8", "spg-table12", "spg-table13", "spg-table14",
}  # fmt: skip


def test_all_that_were_asked_for_are_there() -> None:
    assert set(recipes.names()) >= ASKED


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_resolves(name: str) -> None:
    study = recipes.find(name)
    made = plan(study.narrowed(None, study.seeds[:1]), Places(Path("own"), Path("shared")), "cpu")
    assert made.runs
    assert study.source
    assert study.notes
    compared = [key for key in study.figures if key[2] in [m.label for m in study.methods]]
    assert bool(compared) == bool(study.figures)
    assert {measure for measure, _, _ in study.figures} <= {m.text for m in study.measures}
    work = made.work().values()
    assert all(spec.benchmark in cost.SIZES for spec in work)
    for run in made.runs:
        needs = {need for m in study.measures for need in m.measure.needs}
        assert len(run.against) == len(needs)


@pytest.mark.parametrize(
    ("recipe", "measure", "benchmark", "method", "mean", "std"),
    [
        ("hat-table1", "rho@8", "mixture", "hat", -0.06, 0.01),
        ("hat-table1", "rho@8", "mixture", "lfl", -0.92, 0.08),
        ("hat-table1", "rho@2", "mixture", "pathnet", -0.09, 0.16),
        ("hat-cifar", "rho@10", "cifar", "ewc", -0.18, None),
        ("hat-permuted-mnist", "acc", "permuted-mnist", "hat", 0.986, None),
        ("hat-mnist2", "acc", "mnist2", "CAB", 0.949, None),
        ("hat-fig7", "capacity", "cifar100", "hat", 0.21, None),
        ("hat-fig7", "capacity", "mnist", "DEN", 0.18, None),
        ("pmask-table1", "parameters", "split-cifar10", "pmask", 7_100_000, None),
        ("pmask-table2", "parameters", "split-cifar100", "pnn", 7_100_000, None),
        ("resnet18", "parameters", "cifar", "resnet18-hat-bn", 11_200_000, None),
        ("spg-tables2-4", "acc", "c-10", "MTL", 0.76, 0.0),
        ("spg-tables2-4", "acc", "fe-20", "HAT", 0.85, 0.01),
        ("spg-tables2-4", "bwt", "t-20", "CAT", 0.0, None),
        ("spg-tables2-4", "bwt", "fe-10", "SupSup", 0.0, None),
        ("spg-table6", "acc", "c-20", "-CHI", 0.73, 0.01),
        ("spg-tables5-7", "blocked:conv2@half", "c-10", "SPG", 0.0047, None),
        ("spg-table8", "F-each@2", "c-10", "SPG", 0.34, 0.02),
        ("spg-table8", "G-each@half", "t-20", "SPG", 0.30, 0.01),
        ("spg-table8", "F-total", "fe-20", "SPG", 0.10, 0.01),
        ("spg-table12", "acc", "t-20", "B1(0.5)", 0.50, 0.01),
        ("spg-table14", "acc", "i-100", "HPG", 0.49, 0.01),
        ("spg-table14", "acc", "average", "HPG", 0.70, None),
        ("spg-table12", "acc", "average", "B2", 0.71, None),
        ("spg-tables2-4", "acc", "average", "NCL", 0.62, None),
        ("spg-tables2-4", "minutes", "c-10", "UCL", 175, 38),
        ("spg-tables2-4", "minutes", "i-100", "TAG", 5821, 244),
        ("spg-tables2-4", "minutes", "fe-20", "CAT", 412, 96),
        ("spg-tables2-4", "learnable", "c-20", "SupSup", 130_191_360, None),
        ("spg-tables2-4", "learnable", "i-100", "UCL", 8_557_416, None),
    ],
)
def test_figures(recipe: str, measure: str, benchmark: str, method: str, mean: float, std: float | None) -> None:
    figure = recipes.find(recipe).figures[measure, benchmark, method]
    assert (figure.mean, figure.std) == (mean, std)


@pytest.mark.parametrize("name", recipes.names())
def test_a_band_shuts_0_out_unless_the_figure_may_be_0(name: str) -> None:
    """A band so wide that nothing at all would be within it says nothing."""
    for place, figure in recipes.find(name).figures.items():
        if figure.band is not None and figure.mean != 0 and (figure.std or 0) <= abs(figure.mean) / 2:
            assert figure.verdict(0) != "within", (place, figure)


@pytest.mark.parametrize("name", ["pmask-table1", "pmask-table2", "resnet18"])
def test_no_count_of_parameters_must_miss(name: str) -> None:
    """Only those that a network here can have are held to a band: ResNet-18 with one set of norms."""
    study = recipes.find(name)
    network = sum(p.numel() for p in build("resnet18", (3, 32, 32)).parameters())
    count = network + 110 * (512 + 1)  # the heads of five tasks of 2 and five of 20 classes
    held = {key[2]: figure for key, figure in study.figures.items() if figure.band is not None}
    assert set(held) == ({"resnet18-joint", "resnet18-sgd", "resnet18-hat"} if name == "resnet18" else set())
    assert all(figure.verdict(count) == "within" for figure in held.values())


@pytest.mark.parametrize("name", recipes.names())
def test_a_learning_rate_of_025_goes_with_the_frameworks_beginnings(name: str) -> None:
    study = recipes.find(name)
    for spec in plan(study.narrowed(None, study.seeds[:1]), Places(Path("own"), Path("shared")), "cpu").work().values():
        if spec.settings.get("lr") == 0.25:
            assert spec.net_options["init"] == "torch", spec.name


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_has_a_smaller_form(name: str) -> None:
    whole, small = recipes.find(name), recipes.find(name, "small")
    assert small.name == f"{name}-small"
    assert set(small.seeds) <= set(whole.seeds)
    assert not any(figure.band for figure in small.figures.values())
    sizes = {}
    for study in (whole, small):
        made = plan(study.narrowed(None, study.seeds[:1]), Places(Path("own"), Path("shared")), "cpu")
        sizes[study.scale] = [
            sum(cost._sample_epochs(s)[1] for s in made.work().values()) * len(study.seeds),
            made.runs,
        ]
    assert sizes["small"][0] < sizes[""][0] / 5
    for run in sizes["small"][1]:
        assert run.spec.benchmark_options["train_per_class"] <= 1000
        assert run.spec.epochs <= 60 or run.spec.method == "random"
        # Columns and modules are parts of that: they keep their proportion to the network of the others.
        scale = run.spec.net_options.get("width_scale")
        assert scale in (None, 0.25), run.method


@pytest.mark.parametrize("scale", ["", "small"])
def test_the_stand_in_that_is_advised_fails_no_member_of_fig7(scale: str, tmp_path: Path) -> None:
    study = recipes.find("hat-fig7", scale).with_settings({"replace": "facescrub=yale_faces"})
    for run in plan(study, Places(tmp_path, tmp_path), "cpu", str(tmp_path)).runs:
        with pytest.raises(HatrackError, match="no train and test Parquet files in"):
            sequence_of(run.spec)  # what it lacks is the pictures alone


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ("hat-table1", "LFL has λ = 0.003 on the mean distance of a batch"),
        ("spg-tables2-4", "A-GEM keeps 25 samples a class, its paper's for MNIST"),
        *((name, "(setting importance_dropout)") for name in recipes.names() if name.startswith("spg-")),
    ],
)
def test_what_differs_from_the_paper_is_said(recipe: str, said: str) -> None:
    assert said in recipes.find(recipe).notes


def test_the_network_of_each_method_is_its_own() -> None:
    study = recipes.find("hat-permuted-mnist")
    made = plan(study.narrowed(None, [0]), Places(Path("own"), Path("shared")), "cpu")
    widths = {run.method: run.spec.net_options["widths"] for run in made.runs}
    assert widths == {m: [2000, 2000] if m.startswith("hat") else [800] * 3 for m in widths}


@pytest.mark.parametrize("name", recipes.names())
def test_columns_and_modules_have_the_sizes_of_hats_paper(name: str) -> None:
    """1.117/T of each layer a column, all columns together the size of one network; 16 modules of 0.258."""
    study = recipes.find(name)
    for run in plan(study.narrowed(None, study.seeds[:1]), Places(Path("own"), Path("shared")), "cpu").runs:
        assert run.spec.net_options.get("width_scale", 1.0) == 1.0
        size = (run.spec.net_options.get("part", 1.0), run.spec.net_options.get("branches", 1))
        tasks = run.spec.benchmark_options.get("tasks", cost.SIZES[run.spec.benchmark].tasks)
        # Sums of modules are large: begun as Xavier says, or at full width at 0.05, training diverges.
        started = (run.spec.net_options.get("init"), run.spec.new_method().lr)
        assert run.spec.method != "pathnet" or started == ("torch", 0.01)
        own = {"pnn": (1.117 / tasks, 1), "pathnet": (0.258, 16)}
        assert size == pytest.approx(own.get(run.spec.method, (1.0, 1))), (run.method, run.benchmark)


@pytest.mark.parametrize("name", ["hat-table1", "hat-cifar", "pmask-table1", "pmask-table2", "spg-tables2-4"])
def test_a_width_given_with_set_reaches_columns_and_modules(name: str) -> None:
    study = recipes.find(name).with_settings({"width_scale": 0.5})
    made = plan(study.narrowed(None, study.seeds[:1]), Places(Path("own"), Path("shared")), "cpu")
    assert {spec.net_options["width_scale"] for spec in made.work().values()} == {0.5}
    assert study.changes == ("width_scale = 0.5",)  # no section keeps its own


def test_ucl_has_its_constants_for_cifar_100() -> None:
    study = recipes.find("spg-tables2-4").narrowed(["UCL"], [0])
    for run in plan(study, Places(Path("own"), Path("shared")), "cpu").runs:
        made, spec = run.spec.new_method(), run.spec
        assert isinstance(made, UCL)
        assert (made.beta, made.ratio, made.lr_rho, made.alpha) == (0.002, 0.125, 0.01, 5.0)
        assert (spec.batch_size, spec.epochs) == (256, 100)


def test_by_name_by_file_and_neither(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("benchmarks = ['split-digits']\nmethods = ['sgd']")
    assert recipes.find(str(file)).name == "mine"
    assert recipes.find("hat-mnist2").title == "HAT, MNIST in two tasks"
    with pytest.raises(HatrackError, match="unknown recipe 'hat-table'; did you mean 'hat-table1'"):
        recipes.find("hat-table")


def test_hours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By hand: 2 methods × 54,000 samples × 2 ms on two cores; 31 epochs if nothing improves, else 200.

    A run takes 3 s more. To answer a sample takes 0.3 of a step: 0.12 × 54,000 after every epoch, 5,000 after task 1
    and 10,000 after task 2.
    """
    monkeypatch.setenv("HATRACK_CACHE", str(tmp_path))
    timed: list[object] = []
    monkeypatch.setattr(cost, "_seconds_a_sample", lambda spec, shape: timed.append(spec) or 0.002)
    monkeypatch.setattr(cost, "default_workers", lambda device: 2)
    monkeypatch.setattr(cost, "STEP", {"ewc": 1.5})
    study = recipes.find("hat-mnist2").narrowed(["sgd", "ewc"], [0])
    made = plan(study, Places(Path("own"), Path("shared")), "cpu")
    found = cost.estimate(made.work().values())
    assert found is not None
    epoch, tests = 54_000 * (1 + 1.5 + 2 * 0.3 * 0.12), 2 * 0.3 * 15_000
    assert found.high == pytest.approx(((200 * epoch + tests) * 0.002 + 2 * 3) / 2 / 3600)
    assert found.low == pytest.approx(
        ((31 * epoch + tests) * 0.002 + 2 * 3) / 2 / 3600
    )  # 6 drops of 5 epochs, after the first
    assert found.where == "2 cores"
    assert len(timed) == 1
    assert cost.estimate(made.work().values()) == found
    assert len(timed) == 1  # kept in the cache


def test_networks_are_timed_size_by_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HATRACK_CACHE", str(tmp_path))
    timed: list[float] = []
    monkeypatch.setattr(cost, "_seconds_a_sample", lambda spec, _: timed.append(spec.net_options["part"]) or 1.0)
    study = recipes.find("hat-cifar").narrowed(["sgd", "pathnet", "pnn"], [0])
    cost.estimate(plan(study, Places(Path("own"), Path("shared")), "cpu").work().values())
    assert sorted(timed) == [0.1117, 0.258, 1.0]


def test_joint_training_costs_what_it_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HATRACK_CACHE", str(tmp_path))
    monkeypatch.setattr(cost, "_seconds_a_sample", lambda spec, shape: 0.001)
    monkeypatch.setattr(cost, "default_workers", lambda device: 1)
    monkeypatch.setattr(cost, "STEP", {})
    study = recipes.find("hat-cifar").narrowed(["joint"], [0])
    found = cost.estimate(plan(study, Places(Path("own"), Path("shared")), "cpu").work().values())
    assert found is not None
    passes = sum(9000 * t for t in range(1, 11)) * 200 * (1 + 0.3 * 0.12)
    assert found.high == pytest.approx(((passes + 0.3 * 2000 * 55) * 0.001 + 3) / 3600)


@pytest.mark.parametrize(("method", "passes"), [("CAT", 1 + sum(range(3, 12))), ("PathNet", 2 * 10), ("EWC", 10)])
def test_phases_count(monkeypatch: pytest.MonkeyPatch, method: str, passes: int) -> None:
    """CAT trains task t, a reference and a model for each earlier task: t + 1 times for t > 1; PathNet two paths."""
    made = plan(recipes.find("spg-tables2-4").narrowed([method], [0]), Places(Path("own"), Path("shared")), "cpu")
    (spec,) = [run.spec for run in made.runs if run.benchmark == "c-10"]
    monkeypatch.setattr(cost, "STEP", {})
    least, most = cost._sample_epochs(spec)
    assert most == pytest.approx(4500 * 500 * passes * (1 + 0.3 * 0.12) + 0.3 * 1000 * 55)
    assert 0 < least < most


@pytest.mark.parametrize("without", ["facescrub,svhn", ["facescrub", "svhn"]])
def test_members_left_out_are_counted_not_their_letters(without: str | list[str]) -> None:
    def most(left_out: str | list[str]) -> float:
        return cost._sample_epochs(resolve({"method": "sgd", "benchmark": "mixture"}, [("without", left_out)]))[1]

    tests = [0.3 * 90_000 / 8 * count * (count + 1) / 2 for count in (6, 8)]
    assert most(without) - tests[0] == pytest.approx((most([]) - tests[1]) * 6 / 8)


def test_fewer_samples_a_class_cost_less() -> None:
    def learned(sets: list[tuple[str, object]]) -> float:
        most = cost._sample_epochs(resolve({"method": "sgd", "benchmark": "c-20", "epochs": 9}, sets))[1]
        return most - 0.3 * 500 * 210

    assert learned([("train_per_class", 90)]) == pytest.approx(learned([]) / 5)  # of 450
    assert learned([("train_per_class", 900)]) == pytest.approx(learned([]))


def test_one_sample_is_timed_in_earnest() -> None:
    spec = resolve({"method": "sgd", "device": "cpu"}, [("widths", [16])])
    assert 0 < cost._seconds_a_sample(spec, (1, 8, 8)) < 0.1


def test_the_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HATRACK_CACHE", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(cost, "_seconds_a_sample", lambda spec, shape: 0.001)
    monkeypatch.setitem(lists._KINDS, "recipes", (["hat-mnist2", "resnet18", "spg-table6"], recipe))
    assert main(["list", "recipes"]) == 0
    out = capsys.readouterr().out
    assert "50 runs, " in out
    assert " cores; 3 figures of the paper" in out or " core; 3 figures of the paper" in out
    assert "plain SGD timed here" in out
    assert "data: mnist\n" in out
    assert "data: cifar10, cifar100\n" in out
    found = " ".join(out.split())
    assert "data: cifar100, tiny_imagenet32; to be got by hand: imagenet32, celeba, femnist" in found
    assert max(map(len, out.splitlines())) <= 80
