"""x-transformers: one stack of layers, and a switch for every idea; random weights, two layers of a few units."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from .architectures import Public, Row

WORDS = 40
LENGTH = 8


class Mean(nn.Module):
    """What a network says of each token, averaged."""

    def __init__(self, net: nn.Module, **also: Any) -> None:
        super().__init__()
        self.net = net
        self.also = also

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x, **self.also)
        return out.mean(1)


USUAL: dict[str, Any] = {"dim": 24, "depth": 2, "heads": 3, "attn_dim_head": 8, "ff_mult": 2}


def _words(stack: str, options: dict[str, Any], around: dict[str, Any], logits: bool) -> nn.Module:
    import x_transformers

    layers = getattr(x_transformers, stack)(**{**USUAL, **options})
    net = x_transformers.TransformerWrapper(num_tokens=WORDS, max_seq_len=16, attn_layers=layers, **around)
    return Mean(net) if logits else Mean(net, return_embeddings=True)


def _series(options: dict[str, Any]) -> nn.Module:
    import x_transformers

    layers = x_transformers.Encoder(**{**USUAL, **options})
    return Mean(x_transformers.ContinuousTransformerWrapper(dim_in=6, dim_out=12, max_seq_len=16, attn_layers=layers))


def _pictures(options: dict[str, Any], around: dict[str, Any]) -> nn.Module:
    import x_transformers

    layers = x_transformers.Encoder(**{**USUAL, **options})
    net: nn.Module = x_transformers.ViTransformerWrapper(
        image_size=32, patch_size=8, num_classes=12, attn_layers=layers, **around
    )
    return net


def _net(
    stack: str, label: str = "plain", around: dict[str, Any] | None = None, logits: bool = False, **options: Any
) -> Row:
    make = partial(_words, stack, options, around or {}, logits)
    return f"{stack} {label}", Public(make, (LENGTH,), tokens=WORDS)


NETS: dict[str, Public] = dict([
    # ---- positions
    _net("Encoder"),
    _net("Encoder", "without positions", around={"use_abs_pos_emb": False}),
    _net("Encoder", "sinusoidal", around={"scaled_sinu_pos_emb": True}),
    _net("Encoder", "rotary", rotary_pos_emb=True),
    _net("Encoder", "rotary, xpos off, partial", rotary_pos_emb=True, rotary_emb_dim=4),
    _net("Decoder", "rotary with xpos", rotary_pos_emb=True, rotary_xpos=True),
    _net("Decoder", "alibi", alibi_pos_bias=True, alibi_num_heads=2),
    _net("Encoder", "relative bias", rel_pos_bias=True),
    _net("Encoder", "dynamic bias", dynamic_pos_bias=True, dynamic_pos_bias_log_distance=False),
    _net("Decoder", "data dependent alibi", attn_data_dependent_alibi=True),
    _net("Decoder", "contextual positions", attn_use_cope=True, attn_cope_max_pos=4),
    _net("Decoder", "shifted tokens", shift_tokens=1),
    # ---- norms
    _net("Encoder", "rmsnorm", use_rmsnorm=True),
    _net("Encoder", "simple rmsnorm", use_simple_rmsnorm=True),
    _net("Encoder", "scalenorm", use_scalenorm=True),
    _net("Encoder", "tanh for a norm", use_dynamic_tanh=True),
    _net("Encoder", "after the sum", pre_norm=False),
    _net("Encoder", "sandwich norm", sandwich_norm=True),
    _net("Encoder", "residual attention, after the sum", pre_norm=False, residual_attn=True),
    _net("Encoder", "residual attention", residual_attn=True),
    _net("Encoder", "normed queries and keys", attn_qk_norm=True),
    _net("Encoder", "normed by dimension", attn_qk_norm=True, attn_qk_norm_dim_scale=True),
    _net("Decoder", "normed embeddings", around={"post_emb_norm": True, "l2norm_embed": True}),
    # ---- feedforward
    _net("Encoder", "glu", ff_glu=True),
    _net("Encoder", "swiglu without biases", ff_glu=True, ff_swish=True, ff_no_bias=True),
    _net("Encoder", "squared relu", ff_relu_squared=True),
    _net("Encoder", "norm inside", ff_post_act_ln=True),
    _net("Encoder", "with custom glu bias", ff_glu=True, ff_glu_mult_bias=True),
    # ---- attention
    _net("Decoder"),
    _net("Decoder", "one key", attn_one_kv_head=True),
    _net("Decoder", "grouped queries", heads=4, attn_kv_heads=2),
    _net("Encoder", "memories of its own", attn_num_mem_kv=3),
    _net("Encoder", "talking heads", attn_pre_talking_heads=True, attn_post_talking_heads=True),
    _net("Decoder", "top two", attn_sparse_topk=2),
    _net("Encoder", "gated values", attn_gate_values=True),
    _net("Encoder", "gated heads", attn_head_scale=True),
    _net("Encoder", "on attention", attn_on_attn=True),
    _net("Decoder", "softclamped", attn_softclamp_logits=True, attn_flash=False),
    _net("Encoder", "sigmoid", attn_sigmoid=True),
    _net("Decoder", "selective", attn_selective=True),
    _net("Encoder", "flash", attn_flash=True),
    _net("Encoder", "value rmsnorm", attn_value_rmsnorm=True),
    _net("Encoder", "latent values", attn_use_latent_kv=True, attn_dim_latent_kv=8, attn_use_latent_q=True,
          attn_dim_latent_q=8),
    _net("Encoder", "laser", attn_laser=True),
    _net("Encoder", "learned value residual", add_value_residual=True),
    _net("Encoder", "orthogonal projections", attn_orthog_projected_values=True),
    # ---- structure
    _net("Encoder", "macaron", macaron=True),
    _net("Encoder", "sandwich", sandwich_coef=1),
    _net("Encoder", "gated residual", gate_residual=True),
    _net("Encoder", "scaled residual", scale_residual=True),
    _net("Encoder", "hyper connections", num_residual_streams=2),
    _net("Encoder", "U-Net skips", depth=4, unet_skips=True),
    _net("Encoder", "layers twice", weight_tie_layers=True),
    _net("Encoder", "reinjected input", reinject_input=True),
    _net("Encoder", "integrated layers", use_layerscale=True),
    # ---- around it
    _net("Encoder", "memory tokens", around={"num_memory_tokens": 3}),
    _net("Decoder", "words out", logits=True),
    _net("Decoder", "tied words out", logits=True, around={"tie_embedding": True}),
    _net("Decoder", "narrow words", around={"emb_dim": 12}),
    _net("Encoder", "mixture of softmaxes", logits=True, around={"mixture_of_softmax": True}),
    ("ContinuousTransformerWrapper", Public(partial(_series, {}), (LENGTH, 6))),
    ("ContinuousTransformerWrapper rotary, glu, rmsnorm", Public(partial(_series, {"rotary_pos_emb": True,
          "ff_glu": True, "use_rmsnorm": True}), (LENGTH, 6))),
    ("ViTransformerWrapper", Public(partial(_pictures, {}, {}), (3, 32, 32))),
    ("ViTransformerWrapper register tokens", Public(partial(_pictures, {}, {"num_register_tokens": 3}), (3, 32, 32))),
])  # fmt: skip
