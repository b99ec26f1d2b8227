"""Pushing to the Hub and fetching from it, with huggingface_hub itself against a stand-in server on loopback."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import gettempdir
from threading import Thread
from typing import Any

import pytest
import torch
from safetensors.torch import load

from hatrack import HatrackError, Hats, Inputs, Learner, Task
from hatrack.methods import METHODS
from hatrack.ship import model_card
from hatrack.targets import Classification

from .certificate.saves import Mixed, copied, edit, task, taught
from .certificate.test_certify import checked
from .hub_server import TOKEN, Hub, Repo

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")


@cache
def two_tasks() -> Learner:
    return taught("hat", 2)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """The server, and a huggingface_hub that was imported for it: it reads its environment once."""
    pytest.importorskip("huggingface_hub")
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "huggingface_hub"}
    server = Hub()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.lower().endswith("_proxy") or name.startswith("HF_")]:
            patch.delenv(name)
        patch.setenv("HF_ENDPOINT", server.address)
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hub")))
        for off in ("XET", "TELEMETRY", "PROGRESS_BARS"):
            patch.setenv(f"HF_HUB_DISABLE_{off}", "1")
        _forget(())
        yield server
        getattr(import_module("huggingface_hub"), "close_session", lambda: None)()  # there is none before 1.0
    _forget(before)
    server.shutdown()
    server.server_close()
    thread.join()


def _forget(instead: Any) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "huggingface_hub"]:
        del sys.modules[name]
    sys.modules.update(instead)


@pytest.fixture
def server(served: Hub) -> Hub:
    served.repos.clear()
    served.resolved.clear()
    return served


def same(one: Any, other: Any, names: tuple[str, ...] = ("t0", "t1")) -> None:
    for i, name in enumerate(names):
        x = task(i).train.first(24)
        assert one.predict(x, name).numpy().tobytes() == other.predict(x, name).numpy().tobytes()


def written(files: dict[str, bytes], folder: Path) -> Path:
    """Put what a repository holds into a folder, as `hf download` does."""
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def test_what_is_pushed_comes_back(server: Hub, tmp_path: Path) -> None:
    learner = two_tasks()
    known = dict(learner.stored)
    address = learner.push_to_hub("me/pets", token=TOKEN, license="apache-2.0")
    assert learner.stored == known
    repo = server.repos["me/pets"]
    assert address == f"{server.address}/me/pets/commit/{repo.branches['main']}"
    assert not repo.private

    back = Learner.from_pretrained("me/pets", Mixed(), device="cpu")
    same(learner, back)
    assert back.verify().ok
    assert back.matrix() == learner.matrix()
    back.learn(task(2), progress=False)
    assert back.verify().ok


def test_what_lies_there(server: Hub, tmp_path: Path) -> None:
    learner = two_tasks()
    learner.push_to_hub("me/pets", token=TOKEN)
    files = server.repos["me/pets"].files()
    ours = sorted(name.split("-")[0] for name in files)
    told = ["README.md", "certificate.json", "history.json", "learner.json", "live", "masks.safetensors", "tasks"]
    assert ours == [".gitattributes", *told]
    masks = load(files["masks.safetensors"])
    expected = learner.masks()
    assert expected is not None
    assert masks.keys() == expected.keys()
    assert all(torch.equal(masks[name], expected[name]) for name in masks)
    for i in range(2):  # a sample is 25 figures in a row; in no file are three of its rows
        for x in task(i).train.first(24):
            for row in x[0]:
                assert not any(row.numpy().tobytes() in data for data in files.values())
    folder = written(files, tmp_path / "copy")
    assert checked(folder / "certificate.json", folder) == (0, "t0: unchanged\nt1: unchanged\n")


def test_a_certificate_finds_what_was_changed_there(server: Hub, tmp_path: Path) -> None:
    learner = two_tasks()
    learner.push_to_hub("me/pets", token=TOKEN)
    folder = written(server.repos["me/pets"].files(), tmp_path / "copy")
    edited = edit(folder, lambda page: page["tasks"][0].update(inputs={**page["tasks"][0]["inputs"], "mean": [0.2]}))
    assert checked(folder / "certificate.json", edited) == (1, "t0: CHANGED: inputs\nt1: unchanged\n")
    repo = server.repos["me/pets"]
    name = next(name for name in repo.files() if name.startswith("live"))
    data = bytearray(repo.files()[name])
    data[-1] ^= 1
    repo.commit("main", {**repo.files(), name: bytes(data)})
    with pytest.raises(HatrackError, match="was changed after it was written"):
        Learner.from_pretrained("me/pets", Mixed(), device="cpu")


def test_a_push_takes_the_place_of_the_one_before(server: Hub, tmp_path: Path) -> None:
    learner = taught("hat", 1)
    learner.push_to_hub("me/pets", token=TOKEN)
    repo = server.repos["me/pets"]
    first = repo.files()
    repo.commit("main", {**first, "notes.md": b"of somebody's"})
    learner.learn(task(1), progress=False)
    learner.push_to_hub("me/pets", token=TOKEN, commit_message="another")
    now = repo.files()
    gone = {name for name in first if name.startswith(("live-", "tasks-"))}
    assert len(gone) == 2
    assert not gone & now.keys()
    assert now["notes.md"] == b"of somebody's"
    assert sum(name.endswith(".safetensors") for name in now) == 3
    old, new = written(first, tmp_path / "old"), written(now, tmp_path / "new")
    assert checked(old / "certificate.json", new) == (0, "t0: unchanged\n")

    forgets = taught("sgd", 2)
    forgets.push_to_hub("me/pets", token=TOKEN)
    assert not {"certificate.json", "masks.safetensors"} & repo.files().keys()
    assert "lets later tasks change older ones" in repo.files()["README.md"].decode()
    same(forgets, Learner.from_pretrained("me/pets", Mixed(), device="cpu"))

    sha = next(sha for sha, files in repo.commits.items() if files is first)
    assert Learner.from_pretrained("me/pets", Mixed(), device="cpu", revision=sha).finished == 1


def test_a_branch_is_made_and_read(server: Hub) -> None:
    learner = two_tasks()
    learner.push_to_hub("me/pets", token=TOKEN, revision="second")
    learner.push_to_hub("me/pets", token=TOKEN, revision="second")
    assert list(server.repos["me/pets"].files()) == [".gitattributes"]
    same(learner, Learner.from_pretrained("me/pets", Mixed(), device="cpu", revision="second"))
    with pytest.raises(HatrackError, match="holds no learner"):
        Learner.from_pretrained("me/pets", Mixed())


def test_what_others_put_there_is_not_fetched(server: Hub) -> None:
    two_tasks().push_to_hub("me/unseen", token=TOKEN)  # of no other test: what was fetched once is kept
    repo = server.repos["me/unseen"]
    repo.commit("main", {**repo.files(), "hatrack.py": b"raise SystemExit", "live.pkl": b"x", "data.safetensors": b"x"})
    Learner.from_pretrained("me/unseen", Mixed(), device="cpu")
    kinds = sorted(path.split("-")[0] for path in server.resolved)
    assert kinds == ["history.json", "learner.json", "live", "tasks"]


def test_a_page_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    two_tasks().save(tmp_path / "saved")
    outside = copied(tmp_path / "saved", "outside")
    name = json.loads((outside / "learner.json").read_text())["files"]["live"]["name"]
    for odd in (f"../outside/{name}", str(outside / name), "/dev/zero", f"sub/{name}", name + "\n"):
        edited = edit(tmp_path / "saved", lambda page, odd=odd: page["files"]["live"].update(name=odd))
        text = (edited / "learner.json").read_text()
        page = {key: value for key, value in json.loads(text).items() if key not in ("sha256", "seals")}
        (edited / "learner.json").write_text(json.dumps(page))  # as version 0.1 wrote it, without a digest
        with pytest.raises(HatrackError, match="names a file that no learner is saved in"):
            Learner.from_pretrained(edited, Mixed(), device="cpu")


def test_a_folder_needs_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    learner = two_tasks()
    learner.save(tmp_path / "saved")
    same(learner, Learner.from_pretrained(str(tmp_path / "saved"), Mixed(), device="cpu"))
    with pytest.raises(HatrackError, match="has no revision 'v1'"):
        Learner.from_pretrained(tmp_path / "saved", Mixed(), revision="v1")
    with pytest.raises(HatrackError, match="holds no saved learner"):
        Learner.from_pretrained(tmp_path / "nothing", Mixed())
    for ask in (lambda: learner.push_to_hub("me/pets"), lambda: Learner.from_pretrained("me/pets", Mixed())):
        with pytest.raises(HatrackError, match=r"pip install 'hatrack\[hub\]'"):
            ask()


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("me/none", {}, "there is no repository 'me/none', or it is private; check the name, log in"),
        ("me/none", {"token": TOKEN}, "there is no repository 'me/none'"),
        ("me/secret", {}, "there is no repository 'me/secret', or it is private"),
        ("me/gated", {}, "repository 'me/gated' is gated; ask for access"),
        ("me/other", {}, r"repository 'me/other' holds no learner \(no learner.json\)"),
        ("me/other", {"revision": "v9"}, "repository 'me/other' has no revision 'v9'"),
        ("./not/there/at/all", {}, "is neither a folder nor the name of a repository"),
        ("two words", {}, "is neither a folder nor the name of a repository"),
    ],
)
def test_what_cannot_be_fetched_is_one_line(server: Hub, name: str, options: dict[str, Any], said: str) -> None:
    server.repos |= {"me/secret": Repo(private=True), "me/gated": Repo(gated=True), "me/other": Repo()}
    for repo in server.repos.values():
        repo.commit("main", {"config.json": b"{}"})
    with pytest.raises(HatrackError, match=said) as raised:
        Learner.from_pretrained(name, Mixed(), **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("me/pets", {}, r"no permission for 'me/pets' \(401\); log in with `hf auth login`"),
        ("me/pets", {"token": "hf_reads"}, r"no permission for 'me/pets' \(403\)"),
        ("me/open", {"token": TOKEN, "private": True}, "'me/open' is there already, and public"),
        (
            "me/open",
            {"token": TOKEN, "revision": "refs/pr/1"},
            "the Hub refuses what was asked of 'me/open' .*Invalid reference",
        ),
        ("a b", {"token": TOKEN}, "'a b' is neither a folder nor the name of a repository"),
    ],
)
def test_what_cannot_be_pushed_is_one_line(server: Hub, name: str, options: dict[str, Any], said: str) -> None:
    server.repos["me/open"] = Repo()
    server.repos["me/open"].commit("main", {})
    with pytest.raises(HatrackError, match=said) as raised:
        two_tasks().push_to_hub(name, **options)
    assert "\n" not in str(raised.value)
    assert [len(repo.commits) for repo in server.repos.values()] == [1]


def test_a_private_one_is_made_private(server: Hub) -> None:
    learner = two_tasks()
    for _ in range(2):
        learner.push_to_hub("me/secret", token=TOKEN, private=True)
    assert server.repos["me/secret"].private
    same(learner, Learner.from_pretrained("me/secret", Mixed(), device="cpu", token=TOKEN))


def test_no_network_is_one_line(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")  # where nobody listens
    learner = two_tasks()
    for ask in (
        lambda: learner.push_to_hub("me/pets", token=TOKEN),
        lambda: Learner.from_pretrained("me/never", Mixed()),
    ):
        with pytest.raises(HatrackError, match="the Hub could not be asked for 'me/") as raised:
            ask()
        assert "\n" not in str(raised.value)


def test_what_holds_samples_or_nothing_is_not_pushed(server: Hub) -> None:
    keeps = next(name for name in METHODS if METHODS[name].keeps_samples)
    with pytest.raises(HatrackError, match="keeps samples of its tasks"):
        taught(keeps, 1).push_to_hub("me/pets", token=TOKEN)
    with pytest.raises(HatrackError, match="no finished task"):
        taught("hat", 0).push_to_hub("me/pets", token=TOKEN)
    assert not server.repos


def test_one_that_does_not_verify_says_so(server: Hub) -> None:
    learner = taught("hat", 1)
    with torch.no_grad():
        learner.model.heads[0].weight.add_(1)
    learner.push_to_hub("me/pets", token=TOKEN)
    files = server.repos["me/pets"].files()
    assert "certificate.json" not in files
    assert "There is no certificate: nothing is certified that is not as it was" in files["README.md"].decode()


def test_after_a_release_the_others_are_pushed(server: Hub) -> None:
    learner = taught("hat", 2)
    learner.release("t0")
    learner.push_to_hub("me/pets", token=TOKEN)
    files = server.repos["me/pets"].files()
    card = files["README.md"].decode()
    assert ("certificate.json" in files) != ("There is no certificate" in card)
    assert gettempdir() not in card
    assert "| t1 |" in card
    assert "t0" not in card
    back = Learner.from_pretrained("me/pets", Mixed(), device="cpu")
    x = task(1).train.first(24)
    assert torch.equal(back.predict(x, 1), learner.predict(x, "t1"))
    with pytest.raises(HatrackError, match="was released"):
        back.predict(x, "t0")


def test_one_in_the_middle_of_a_task_goes_on_elsewhere(server: Hub) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    learner, whole = taught("hat", 1), taught("hat", 1)
    learner.epochs = whole.epochs = 3
    with pytest.raises(KeyboardInterrupt):
        learner.learn(task(1), on_epoch=interrupt, progress=False)
    learner.push_to_hub("me/pets", token=TOKEN)
    assert "taught 1 task by hatrack" in server.repos["me/pets"].files()["README.md"].decode()
    back = Learner.from_pretrained("me/pets", Mixed(), device="cpu")
    for one in (whole, back):
        one.learn(task(1), progress=False)
    same(whole, back)
    assert back.verify().ok


def test_hats_go_the_same_way(server: Hub) -> None:
    hats = Hats(Mixed())
    x, y = torch.randn(16, 1, 5, 5), torch.arange(16) % 2
    hats.begin("a", Classification(2), steps=2, example=x)
    optimizer = hats.guard(torch.optim.SGD(hats.trainable(), lr=0.1))
    for _ in range(2):
        optimizer.zero_grad()
        (torch.nn.functional.cross_entropy(hats(x), y) + hats.penalty()).backward()
        optimizer.step()
    hats.end()
    hats.push_to_hub("me/pets", token=TOKEN)
    back = Hats.from_pretrained("me/pets", Mixed(), device="cpu")
    assert torch.equal(back.wear("a")(x), hats.wear("a")(x))
    assert "| a | classification | 0, 1 |" in server.repos["me/pets"].files()["README.md"].decode()


def test_the_card_says_what_it_is_and_obeys_no_name() -> None:
    yaml = pytest.importorskip("yaml")
    odd = "cats | dogs\n# <b>x</b> `y`"
    x = torch.rand(20, 1, 5, 5)
    learner = Learner(Mixed(), epochs=1, device="cpu")
    names = Classification(2, names=("a|b", "---\nlicense: mit"))
    whole = (x, torch.arange(20) % 2)
    learner.learn(Task(odd, whole, test=whole, target=names, inputs=Inputs()), progress=False)
    text = model_card.model_card(learner, "me/pets", 'x"\ntags: [evil]', True, None)
    _, front, rest = text.split("---\n", 2)
    assert yaml.safe_load(front) == {
        "library_name": "hatrack",
        "tags": ["hatrack", "continual-learning", "pytorch"],
        "license": 'x"\ntags: [evil]',
    }
    row = next(line for line in rest.splitlines() if line.startswith("| cats"))
    cells = row.replace("\\|", "").split(" | ")
    assert len(cells) == 7
    assert r"\<b\>x\</b\> \`y\`" in cells[0]
    assert "x: float32, shape \\[1, 5, 5\\], 0." in cells[3]
    score = learner.matrix()[0][0]
    assert cells[5:] == [f"{score:.4f}", f"{score:.4f} |"]
    assert 'from_pretrained("me/pets", net)' in rest
    assert "license:" not in model_card.model_card(learner, "me/pets", None, True, None).split("---\n")[1]
