"""transformers as they are: a dict of tensors goes in, a record comes out, and `features=` says what the heads read.

Texts have different lengths: word 0 fills them up, and the attention mask says where they end.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .architectures import Public, Row
from .transformers_nets import GPT, SMALL, T5, WORDS

LENGTH = 8


def texts(size: int, seed: int) -> dict[str, Tensor]:
    """Return texts of three words or more."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, WORDS, (size, LENGTH), generator=generator)
    lengths = torch.randint(3, LENGTH + 1, (size, 1), generator=generator)
    mask = (torch.arange(LENGTH) < lengths).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def pictures(size: int, seed: int) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(size, 3, 32, 32, generator=torch.Generator().manual_seed(seed))}


def first(out: Any) -> Tensor:
    """The class token, as text classifiers read BERT."""
    return out.last_hidden_state[:, 0]


def mean(out: Any, x: dict[str, Tensor]) -> Tensor:
    """The mean over a text's own words."""
    mask = x["attention_mask"].unsqueeze(-1)
    return (out.last_hidden_state * mask).sum(1) / mask.sum(1)


def last(out: Any, x: dict[str, Tensor]) -> Tensor:
    """The last word, as text classifiers read GPT."""
    place = x["attention_mask"].sum(1) - 1
    return out.last_hidden_state[torch.arange(len(place)), place]


def made(cls: str, config: dict[str, Any], attention: str = "") -> nn.Module:
    """Return a model of transformers' with random weights."""
    import transformers

    kind = getattr(transformers, cls)
    settings = kind.config_class(**config)
    if attention:
        settings._attn_implementation = attention
    model: nn.Module = kind(settings)
    return model


def _row(cls: str, features: Any, given: Any = texts, attention: str = "", **config: Any) -> Row:
    usual = {**SMALL, "vocab_size": WORDS, "max_position_embeddings": 32} if given is texts else SMALL
    read = features if isinstance(features, str) else features.__name__
    label = f"{cls} {attention + ' ' if attention else ''}{'texts' if given is texts else 'as it is'}, {read}"
    return label, Public(partial(made, cls, {**usual, **config}, attention), (), features=features, inputs=given)


DECODER: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32, "use_cache": False}

NETS: dict[str, Public] = dict([
    _row("BertModel", mean),
    _row("BertModel", first),
    _row("BertModel", "pooler_output"),
    _row("BertModel", mean, attention="eager"),
    _row("RobertaModel", first, pad_token_id=0),
    _row("DistilBertModel", mean, dim=24, n_layers=2, n_heads=3, hidden_dim=32),
    _row("ElectraModel", first, embedding_size=12),
    _row("AlbertModel", mean, embedding_size=12),
    _row("DebertaV2Model", first, relative_attention=True, pos_att_type=["c2p", "p2c"]),
    _row("ModernBertModel", mean, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2),
    _row("T5EncoderModel", mean, **T5),
    _row("GPT2Model", last, **GPT, use_cache=False, bos_token_id=1, eos_token_id=1),
    _row("LlamaModel", last, **DECODER, pad_token_id=0),
    _row("MistralModel", last, **DECODER, pad_token_id=0),
    _row("Qwen2Model", mean, **DECODER),
    _row("ViTModel", "pooler_output", pictures, image_size=32, patch_size=8),
    _row("ViTModel", first, pictures, image_size=32, patch_size=8),
    _row("Dinov2Model", first, pictures, image_size=32, patch_size=8, mlp_ratio=2),
])  # fmt: skip
