"""Learning from the network as it was: a frozen teacher, and the loss that compares soft labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


def soft_cross_entropy(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """−Σ_k p_k·log q_k, the mean over the batch; p and q are the softmax of teacher and student logits over T."""
    return cross_entropy(student / temperature, torch.softmax(teacher / temperature, dim=1))


class Teacher:
    """A copy of the network and of heads, in evaluation mode, that is never trained."""

    def __init__(self, net: nn.Module, heads: Sequence[nn.Linear] = ()) -> None:
        self._net = deepcopy(net).eval().requires_grad_(False)
        self._heads = [deepcopy(head).requires_grad_(False) for head in heads]

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        """Return the features of a batch."""
        features: Tensor = self._net(x)
        return features.flatten(1)

    def logits(self, x: Tensor) -> list[Tensor]:
        """Return the logits of every head."""
        features = self.features(x)
        return [head(features.to(head.weight.dtype)) for head in self._heads]

    def state(self) -> dict[str, Tensor]:
        """Return all that is needed to build the teacher again."""
        state = {f"net/{name}": t for name, t in _tensors(self._net).items()}
        return state | {f"head/{t}/{n}": p for t, head in enumerate(self._heads) for n, p in head.named_parameters()}

    @classmethod
    def from_state(cls, net: nn.Module, heads: Sequence[nn.Linear], state: Mapping[str, Tensor]) -> Teacher:
        """Return the teacher that `state` describes; `net` and `heads` give the shapes."""
        teacher = cls(net, heads)
        for name, tensor in teacher.state().items():
            tensor.copy_(state[name])
        return teacher


def _tensors(net: nn.Module) -> dict[str, Tensor]:
    return {**dict(net.named_parameters()), **dict(net.named_buffers())}
