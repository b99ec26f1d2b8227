"""A dozen of the smallest networks of other people, where their packages are installed; `make test-public` has all."""

from __future__ import annotations

import importlib.util

import pytest

from .catalogue import NETS, prepare
from .page import unexpected
from .trial import trial

SMALLEST = [
    "timm/resnet18",
    "timm/densenet121",
    "timm/convnext_atto",
    "timm/vit_tiny_patch16_224",
    "transformers/BertModel",
    "transformers/T5EncoderModel",
    "transformers/LlamaModel",
    "transformers/ViTModel",
    "transformers/BertModel texts, mean",
    "transformers/GPT2Model texts, last",
    "peft/BertModel LoRA",
    "vit-pytorch/simple_vit.SimpleViT",
    "vit-pytorch/parallel_vit.ViT",
    "x-transformers/Encoder plain",
    "x-transformers/Decoder grouped queries",
    "by-hand/graph attention",
    "by-hand/u-net",
]


@pytest.mark.filterwarnings("ignore")  # what other packages warn of is theirs
@pytest.mark.parametrize("name", SMALLEST)
def test_goes_through_its_trial(name: str) -> None:
    package = name.partition("/")[0]
    if package != "by-hand":
        if importlib.util.find_spec(package.replace("-", "_")) is None:
            pytest.skip(f"{package} is not installed; `make test-public` has an environment with it")
        prepare(package)
    found = trial(name, NETS[name])
    assert not unexpected(found), f"{found.outcome}: {found.line}\n{found.traceback}"
