"""Settings: what help says of them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import pytest

from hatrack import HAT, Method, hyper
from hatrack.methods import METHODS
from hatrack.methods.hyper import hyperparameters


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_help_says_what_every_setting_means_what_it_is_and_what_is_accepted(method: type[Method]) -> None:
    said = inspect.getdoc(method) or ""
    lines = {line.split(" = ")[0].strip(): line for line in said.splitlines() if " = " in line}
    for name, setting in hyperparameters(method).items():
        assert lines[name].startswith(f"    {name} = {setting.default!r}")
        assert lines[name].endswith(f": {setting.help}")
        for bound in (setting.low, setting.high, *(setting.choices or ())):
            assert bound is None or repr(bound) in lines[name]
    assert said.splitlines()[0].endswith(".")


def test_the_text_of_a_class_comes_first_and_is_its_own() -> None:
    @dataclass
    class Mine(HAT):
        """Mine.

        With a second paragraph.
        """

        extra: int = hyper(3, "how many", low=1, high=9)

    said = inspect.getdoc(Mine) or ""
    assert said.startswith("Mine.\n\nWith a second paragraph.\n\nSettings, with their defaults")
    assert "    extra = 3 (1 ≤ extra ≤ 9): how many" in said
    assert "    s_max = 400.0" in said
    assert "extra" not in (HAT.__doc__ or "")
