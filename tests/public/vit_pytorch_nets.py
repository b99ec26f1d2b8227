"""vit-pytorch: vision transformers of many papers; random weights, two layers of a few units.

Its networks end in a linear layer for classes; that layer's outputs are the features.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from torch import Tensor, nn

from .architectures import Public, Row


class First(nn.Module):
    """The first of several things that a network returns."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        first: Tensor = self.net(x)[0]
        return first


NARROW: dict[str, Any] = {"dim": 24, "heads": 3, "mlp_dim": 32, "dim_head": 8}


def _made(module: str, cls: str, options: dict[str, Any], first: bool) -> nn.Module:
    net: nn.Module = getattr(import_module(f"vit_pytorch.{module}"), cls)(num_classes=12, **options)
    return First(net) if first else net


def _net(
    module: str,
    cls: str,
    label: str = "",
    shape: tuple[int, ...] = (3, 32, 32),
    first: bool = False,
    refused: str = "",
    **options: Any,
) -> Row:
    name = f"{module}.{cls}{f' {label}' if label else ''}"
    return name, Public(partial(_made, module, cls, options, first), shape, refused=refused)


def _vit(module: str, cls: str = "ViT", label: str = "", first: bool = False, **options: Any) -> Row:
    """A network over square patches, in the names that most share."""
    usual = {"image_size": 32, "patch_size": 8, "depth": 2, **NARROW}
    return _net(module, cls, label, first=first, **{**usual, **options})


def _line(module: str, cls: str) -> Row:
    return _net(module, cls, shape=(3, 32), seq_len=32, patch_size=8, depth=2, **NARROW)


def _film(module: str, cls: str, **options: Any) -> Row:
    usual = {"image_size": 16, "image_patch_size": 8, "frames": 4, "frame_patch_size": 2, **NARROW}
    return _net(module, cls, shape=(3, 4, 16, 16), **{**usual, **options})


def _nd(module: str, **options: Any) -> Row:
    usual = {"ndim": 2, "input_shape": (32, 32), "patch_size": (8, 8), "depth": 2, **NARROW}
    reason = "flex_attention() calls a function of its own for every score"
    return _net(module, "ViTND", refused=reason, **{**usual, **options})


NETS: dict[str, Public] = dict([
    _vit("vit"),
    _vit("vit", label="mean", pool="mean"),
    _vit("simple_vit", "SimpleViT"),
    _vit("simple_flash_attn_vit", "SimpleViT"),
    _vit("simple_vit_with_register_tokens", "SimpleViT"),
    _vit("simple_vit_with_patch_dropout", "SimpleViT"),
    _vit("simple_vit_with_qk_norm", "SimpleViT"),
    _vit("simple_vit_with_value_residual", "SimpleViT"),
    _vit("simple_vit_with_fft", "SimpleViT", freq_patch_size=8),
    _vit("simple_vit_with_hyper_connections", "SimpleViT", num_residual_streams=2),
    _vit("simple_vit_with_relative_proj_pos_bias", "SimpleViT"),
    _vit("simple_vit_with_sparse_gating", "SimpleViTWithSparseGating"),
    _vit("simple_vit_with_specialized_cls", "SimpleViT"),
    _vit("simple_vit_attn_residual", "SimpleViTAttnResidual"),
    _vit("simple_vit_orthog_residual_update", "SimpleViT"),
    _vit("attn_residual_with_dca_simple_vit", "SimpleViT"),
    _vit("simple_uvit", "SimpleUViT"),
    _vit("vit_with_patch_dropout"),
    _vit("vit_with_patch_merger"),
    _vit("vit_with_decorr", first=True),
    _vit("vit_with_keel_post_ln"),
    _vit("vit_for_small_dataset"),
    _vit("vit_detpool", "ViTDetPool"),
    _vit("vit_5"),
    _vit("parallel_vit"),
    _vit("learnable_memory_vit"),
    _vit("deepvit", "DeepViT"),
    _vit("cait", "CaiT", cls_depth=1),
    _vit("xcit", "XCiT", cls_depth=1),
    _vit("rvt", "RvT"),
    _vit("ats_vit", refused="it asks the data how many tokens to keep", max_tokens_per_depth=(12, 8)),
    _vit("normalized_vit", "nViT"),
    _vit("jumbo_vit", "JumboViT", jumbo_cls_k=2),
    _vit("jet_vit", "JetViT"),
    _vit("vat"),
    _vit("wwt", "WWT", num_slots=4),
    _net("looped_vit", "LoopedViT", dim=24, image_size=32, patch_size=8, pre_loop_depth=1, num_looped_blocks=1,
          post_loop_depth=1,
         loop_depth=2, heads=3, dim_head=8, mlp_dim=32),
    _net("look_vit", "LookViT", dim=24, image_size=32, patch_size=16, highres_patch_size=8, depth=2, heads=3,
          dim_head=8,
         cross_attn_heads=3, cross_attn_dim_head=8, mlp_factor=2, highres_mlp_factor=2),
    _net("pit", "PiT", image_size=32, patch_size=8, dim=24, depth=(1, 1), heads=3, mlp_dim=32, dim_head=8),
    _net("levit", "LeViT", shape=(3, 64, 64), image_size=64, dim=(16, 24, 32), depth=1, heads=(2, 3, 4), mlp_mult=2,
          dim_key=8, dim_value=8),
    _net("cross_vit", "CrossViT", image_size=48, shape=(3, 48, 48), sm_dim=16, lg_dim=24, sm_patch_size=12,
          lg_patch_size=16,
         sm_enc_heads=2, sm_enc_mlp_dim=24, sm_enc_dim_head=8, lg_enc_depth=1, lg_enc_heads=2, lg_enc_mlp_dim=24,
          lg_enc_dim_head=8,
         cross_attn_depth=1, cross_attn_heads=2, cross_attn_dim_head=8, depth=1),
    _net("crossformer", "CrossFormer", shape=(3, 64, 64), dim=(32, 32, 64, 64), depth=(1, 1, 1, 1),
          global_window_size=(4, 2, 2, 1),
         local_window_size=2),
    _net("cvt", "CvT", shape=(3, 64, 64), s1_emb_dim=8, s2_emb_dim=16, s3_emb_dim=24, s2_heads=2, s3_heads=3,
          s2_depth=1, s3_depth=1,
         s1_mlp_mult=2, s2_mlp_mult=2, s3_mlp_mult=2),
    _net("twins_svt", "TwinsSVT", shape=(3, 64, 64), s1_emb_dim=8, s2_emb_dim=16, s3_emb_dim=24, s4_emb_dim=32,
          s1_local_patch_size=4,
         s2_local_patch_size=4, s3_local_patch_size=2, s4_local_patch_size=2, s1_global_k=4, s2_global_k=4,
          s3_global_k=2,
         s4_global_k=2, s3_depth=1, s4_depth=1),
    _net("regionvit", "RegionViT", shape=(3, 64, 64), dim=(8, 16, 24, 32), depth=(1, 1, 1, 1), window_size=2),
    _net("regionvit", "RegionViT", "with peg", shape=(3, 64, 64), dim=(8, 16, 24, 32), depth=(1, 1, 1, 1),
          window_size=2, use_peg=True,
         tokenize_local_3_conv=True),
    _net("max_vit", "MaxViT", shape=(3, 64, 64), dim=16, depth=(1, 1), dim_head=8, window_size=4),
    _net("max_vit_with_registers", "MaxViT", shape=(3, 64, 64), dim=16, depth=(1, 1), dim_head=8, window_size=4),
    _net("nest", "NesT", image_size=32, patch_size=4, dim=16, heads=2, num_hierarchies=2, block_repeats=(1, 1),
          mlp_mult=2, dim_head=8),
    _net("mobile_vit", "MobileViT", shape=(3, 64, 64), image_size=(64, 64), dims=(16, 24, 32), depths=(1, 1, 1),
         channels=(8, 8, 16, 16, 16, 16, 24, 24, 32, 32, 48)),
    _net("scalable_vit", "ScalableViT", shape=(3, 64, 64), dim=16, depth=(1, 1), heads=(2, 2), reduction_factor=(4,
          2), window_size=(4, 4),
         iwsa_dim_key=8, iwsa_dim_value=8, ssa_dim_key=8, ssa_dim_value=8, ff_expansion_factor=2),
    _net("sep_vit", "SepViT", shape=(3, 56, 56), dim=16, depth=(1, 1), heads=(2, 2), window_size=7, dim_head=8,
          ff_mult=2),
    _net("t2t", "T2TViT", image_size=32, dim=24, depth=2, heads=3, mlp_dim=32, dim_head=8, t2t_layers=((7, 4), (3, 2))),
    _net("cct", "CCT", img_size=32, embedding_dim=24, n_conv_layers=1, num_layers=2, num_heads=3, mlp_ratio=2.0,
          positional_embedding="learnable"),
    _net("cct", "CCT", "sine", img_size=32, embedding_dim=24, n_conv_layers=2, num_layers=2, num_heads=3,
          mlp_ratio=2.0, positional_embedding="sine"),
    _net("cct_3d", "CCT", shape=(3, 4, 16, 16), img_size=16, num_frames=4, embedding_dim=24, n_conv_layers=1,
          num_layers=2, num_heads=3,
         frame_kernel_size=3, mlp_ratio=2.0, positional_embedding="learnable"),
    _line("vit_1d", "ViT"),
    _line("simple_vit_1d", "SimpleViT"),
    _film("vit_3d", "ViT", depth=2),
    _film("simple_vit_3d", "SimpleViT", depth=2),
    _film("vivit", "ViViT", spatial_depth=1, temporal_depth=1),
    _film("vivit", "ViViT", variant="factorized_self_attention", spatial_depth=1, temporal_depth=1),
    _nd("vit_nd"),
    _nd("vit_nd_rotary"),
    _nd("vit_nd_pope"),
])  # fmt: skip
