"""Layers are told of the widths that their parameters have."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd


def tell(layer: nn.Module) -> None:
    """Tell a layer of the widths that it has now."""
    if isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = layer.weight.shape
    elif isinstance(layer, _ConvNd):
        sizes = (layer.weight.shape[0], layer.weight.shape[1] * layer.groups)
        layer.in_channels, layer.out_channels = sizes if isinstance(layer, _ConvTransposeNd) else sizes[::-1]
    elif isinstance(layer, _NormBase):
        one = next(t for t in (layer.weight, layer.bias, layer.running_mean) if t is not None)
        layer.num_features = len(one)
    elif isinstance(layer, nn.Embedding):
        layer.num_embeddings, layer.embedding_dim = layer.weight.shape
    elif isinstance(layer, nn.PReLU):
        layer.num_parameters = len(layer.weight)
    elif isinstance(layer, nn.RNNBase):
        _tell_recurrent(layer)
    elif isinstance(layer, nn.RNNCellBase):
        layer.input_size, layer.hidden_size = layer.weight_ih.shape[1], layer.weight_hh.shape[1]
    elif isinstance(layer, nn.LayerNorm | nn.RMSNorm):
        layer.normalized_shape = tuple(layer.weight.shape)
    elif isinstance(layer, nn.GroupNorm):
        layer.num_channels = len(layer.weight)
    elif isinstance(layer, nn.MultiheadAttention):
        _tell_attention(layer)
    elif isinstance(layer, nn.Bilinear):
        layer.out_features, layer.in1_features, layer.in2_features = layer.weight.shape


def _tell_recurrent(layer: nn.RNNBase) -> None:
    weights = dict(layer.named_parameters())
    layer.input_size = weights["weight_ih_l0"].shape[1]
    layer.hidden_size = weights["weight_hh_l0"].shape[0] // {"LSTM": 4, "GRU": 3}.get(layer.mode, 1)
    if layer.proj_size:
        layer.proj_size = weights["weight_hr_l0"].shape[0]
    for name, weight in weights.items():  # so that the layer's own list of them is made anew
        setattr(layer, name, weight)


def _tell_attention(layer: nn.MultiheadAttention) -> None:
    width = layer.out_proj.weight.shape[0]
    layer.kdim, layer.vdim = (
        (width, width) if layer.in_proj_weight is not None
        else (layer.k_proj_weight.shape[1], layer.v_proj_weight.shape[1])
    )  # fmt: skip
    layer.embed_dim, layer.num_heads = width, width // layer.head_dim
