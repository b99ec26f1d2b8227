"""What of a network's output the heads read.

Many networks return more than one tensor: transformers a ModelOutput, others a tuple or a dict. `features` says which
part: a key, an attribute or a place, or a function of the output (and of the input, for a mask of padding, say).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from hatrack.errors import HatrackError
from hatrack.options import places
from hatrack.tree import call

Pick = str | int | Callable[..., Tensor]


class Features:
    """Calls the network and takes the features out of what it returns."""

    def __init__(self, net: nn.Module, pick: Pick | None) -> None:
        if not (pick is None or isinstance(pick, str | int) or callable(pick)):
            raise HatrackError(f"features must be a name, a place or a function of the network's output, got {pick!r}.")
        self._net, self.pick = net, pick
        self._hooked = False
        self._with_input = callable(pick) and places(pick) == 2

    def __call__(self, x: Any) -> Tensor:
        """Return the features of a batch."""
        output = call(self._net, x)
        return self._checked(output if self._hooked else self.taken(output, x))

    @contextmanager
    def as_output(self) -> Iterator[None]:
        """Let the network itself return its features, for whoever traces it."""
        if self.pick is None:
            yield
            return

        def replaced(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
            return self.taken(output, kwargs or (args[0] if len(args) == 1 else args))

        self._hooked = True
        hook = self._net.register_forward_hook(replaced, with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()
            self._hooked = False

    def taken(self, output: Any, x: Any) -> Any:
        """Return the features in an output; of a proxy that writes down what is done with it, the same of that."""
        if self.pick is None:
            return output
        if callable(self.pick):
            return self.pick(output, x) if self._with_input else self.pick(output)
        try:
            if isinstance(self.pick, str) and not isinstance(output, Mapping):
                return getattr(output, self.pick)
            return output[self.pick]
        except (KeyError, IndexError, AttributeError, TypeError):
            raise HatrackError(
                f"{type(self._net).__name__} returns {_said(output)}, in which there is no {self.pick!r}; give "
                f"features= another name, a place, or a function of the output."
            ) from None

    def _checked(self, features: Any) -> Tensor:
        if isinstance(features, Tensor) and features.ndim > 1:
            return features
        said = f"one tensor of shape {tuple(features.shape)}" if isinstance(features, Tensor) else _said(features)
        raise HatrackError(
            f"{type(self._net).__name__} gives {said} as features, the heads' input; these must be one tensor (batch, "
            f"features): say which part of the output they are, Learner(net, features=…), by name, place or function."
        )


def _said(output: Any) -> str:
    if isinstance(output, Mapping):
        return f"a {type(output).__name__} of {', '.join(map(str, output)) or 'nothing'}"
    if isinstance(output, tuple | list):
        return f"a {type(output).__name__} of {len(output)}"
    return f"a {type(output).__name__}"
