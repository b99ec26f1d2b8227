"""The model card of a learner that is pushed: README.md with the front matter that the Hub reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hatrack import __version__
from hatrack.data.kind import Kinds
from hatrack.methods import METHODS
from hatrack.ship.export.card import described
from hatrack.ship.export.readme import SHOWN, listed
from hatrack.visible import visible

if TYPE_CHECKING:
    from hatrack.learn.core import Core


def model_card(core: Core, repo_id: str, license: str | None, masks: bool, why: str | None) -> str:
    """Return the text; `why`: what keeps a method that makes a promise from a certificate."""
    return "\n".join([*_front(license), *_text(core, repo_id, masks, why)]) + "\n"


def _front(license: str | None) -> Iterable[str]:
    """Yield YAML, of which JSON is a part."""
    about = {"library_name": "hatrack", "tags": ["hatrack", "continual-learning", "pytorch"]}
    about |= {} if license is None else {"license": license}
    return ("---", *(f"{key}: {json.dumps(value)}" for key, value in about.items()), "---\n")


def _text(core: Core, repo_id: str, masks: bool, why: str | None) -> Iterable[str]:
    numbers, net = core._numbers(), type(core.model.net).__name__
    name, code = repo_id.rpartition("/")[2], METHODS.code_of(type(core.method))
    tasks = f"{len(numbers)} tasks one after another" if len(numbers) > 1 else "1 task"
    yield f"# {plain(name)}\n"
    yield (
        f"One network (`{net}`, {core.parameters_count:,} parameters) that was taught {tasks} by "
        f"hatrack {__version__}, method `{visible(core.method.name)}`.\n"
    )
    yield "| task | predicts | classes | inputs | score | when learned | after the last task |"
    yield "|---|---|---|---|---|---:|---:|"
    yield from (_row(core, task) for task in numbers.values())
    yield f"\nInputs are raw, with a batch axis before the shape. Classes are in order, {SHOWN} at most are listed.\n"
    yield "```python"
    yield "import hatrack\n"
    yield f"net = …  # build the same {net}; its weights are read, its code is not stored"
    yield f"learner = hatrack.Learner.from_pretrained({_quoted(repo_id)}, net)"
    yield f"answer = learner.predict(x, task={_quoted(next(iter(numbers)))})"
    yield "print(learner.verify())"
    yield "```\n"
    if code or core.method.name not in METHODS:
        named = plain(code or core.method.name)
        yield f"The method is not hatrack's own ({named}): `from_pretrained` says how to give it.\n"
    yield "## What is promised\n"
    yield from _promised(core, why)
    if masks:
        yield "\n`masks.safetensors` says what each task uses, by its number: gates of units, or weights in bins."
    yield "\nNo sample that it learned from is in any of these files; of inputs, the least and the greatest values are."


def _row(core: Core, task: int) -> str:
    learned, matrix = core.tasks[task], core.matrix()
    names = list(learned.kind.parts) if isinstance(learned.kind, Kinds) else ["x"]
    about = described(learned, names, core.probes[task].logits)
    classes = "–" if about["classes"] is None else listed(about["classes"])
    inputs = "; ".join(
        f"{x['name']}: {x['dtype']}, shape {x['shape']}, {x['low']:g} to {x['high']:g}" for x in about["inputs"]
    )
    scores = ["–" if score is None else f"{score:.4f}" for score in (matrix[task][task], matrix[-1][task])]
    told = [learned.name, learned.target.name, classes, inputs, core.history[task].score, *scores]
    return f"| {' | '.join(map(plain, told))} |"


def _promised(core: Core, why: str | None) -> Iterable[str]:
    if not core.method.promises():
        yield "Nothing: this method, as it is set, lets later tasks change older ones. So there is no certificate."
        return
    yield (
        "When a task ended, all that it is answered from was locked: whatever was learned later, its answers are the "
        "same bit by bit, on the same machine and versions. `learner.verify()` compares that."
    )
    if why is not None:
        yield f"\nThere is no certificate: {plain(why)}"
        return
    yield (
        "`certificate.json` holds digests of it. Without hatrack and torch, `hatrack certify --checker > "
        "check_hatrack.py` being 200 lines to read:\n"
    )
    yield "```console"
    yield "python check_hatrack.py certificate.json FOLDER    # the files of this repository, now or after more tasks"
    yield "```\n"
    yield (
        "It does not cover the network's code, nor rounding on other machines, and says nothing of how right the "
        "answers are. It is not signed."
    )


def plain(text: str) -> str:
    """Return a text of somebody else's as Markdown that shows it, and does nothing."""
    return re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", visible(text))


def _quoted(text: str) -> str:
    return json.dumps(visible(text), ensure_ascii=False)
