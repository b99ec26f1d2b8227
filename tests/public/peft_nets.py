"""peft: what it adds to a frozen network of transformers'; of LoRA and what is like it, the ranks are the units."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from .architectures import Public, Row
from .padded_nets import DECODER, last, made, mean, pictures, texts
from .transformers_nets import GPT, SMALL, WORDS

BERT = "BertModel", {**SMALL, "vocab_size": WORDS, "max_position_embeddings": 32}
GPT2 = "GPT2Model", {**GPT, "use_cache": False, "bos_token_id": 1, "eos_token_id": 1}
LLAMA = "LlamaModel", {**SMALL, **DECODER, "vocab_size": WORDS, "pad_token_id": 0}
VIT = "ViTModel", {**SMALL, "image_size": 32, "patch_size": 8}
RESNET = "ResNetModel", {"embedding_size": 8, "hidden_sizes": [8, 12], "depths": [1, 1], "layer_type": "basic"}
FINAL = {"GPT2Model": (last, texts), "LlamaModel": (last, texts), "BertModel": (mean, texts)}


def adapted(base: tuple[str, dict[str, Any]], kind: str, options: dict[str, Any]) -> nn.Module:
    """Return a network with an adapter; all but that is frozen."""
    import peft

    net: nn.Module = peft.get_peft_model(made(*base), getattr(peft, kind)(**options))
    return net


def _pooled(out: Any) -> Any:
    return out.pooler_output.flatten(1)


def _row(label: str, base: tuple[str, dict[str, Any]], kind: str = "LoraConfig", **options: Any) -> Row:
    if kind == "LoraConfig":
        options = {"r": 6, "lora_alpha": 8, **options}
    features, inputs = FINAL.get(base[0], (_pooled, pictures))
    make = partial(adapted, base, kind, options)
    return f"{base[0]} {label}", Public(make, (), features=features, inputs=inputs)


ATTENTION = ["query", "value"]
NETS: dict[str, Public] = dict([
    _row("LoRA", BERT, target_modules=ATTENTION),
    _row("LoRA, dropout", BERT, target_modules=ATTENTION, lora_dropout=0.1),
    _row("LoRA, all linear", BERT, target_modules="all-linear"),
    _row("LoRA, biases", BERT, target_modules=ATTENTION, bias="lora_only"),
    _row("LoRA, words", BERT, target_modules=["word_embeddings"]),
    _row("LoRA and a layer", BERT, target_modules=ATTENTION, modules_to_save=["pooler"]),
    _row("rsLoRA", BERT, target_modules=ATTENTION, use_rslora=True),
    _row("DoRA", BERT, target_modules=ATTENTION, use_dora=True),
    _row("AdaLoRA", BERT, "AdaLoraConfig", init_r=6, target_r=4, total_step=100, target_modules=ATTENTION),
    _row("LoRA", GPT2, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True),
    _row("LoRA", LLAMA, target_modules="all-linear"),
    _row("LoRA", VIT, target_modules="all-linear"),
    _row("LoRA, convolutions", RESNET, target_modules=["convolution"]),
    _row("IA3", BERT, "IA3Config", target_modules=["key", "value"], feedforward_modules=[]),
    _row("LoHa", BERT, "LoHaConfig", r=4, target_modules=ATTENTION),
    _row("OFT", BERT, "OFTConfig", oft_block_size=4, target_modules=ATTENTION),
    _row("VeRA", BERT, "VeraConfig", r=4, target_modules=ATTENTION),
])  # fmt: skip
