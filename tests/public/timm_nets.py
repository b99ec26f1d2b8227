"""timm: convolutional networks, vision transformers and what lies between; random weights, few and narrow layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from torch import nn

from .architectures import Public, Row


def _family(name: str) -> Any:
    return import_module(f"timm.models.{name}")


def _created(name: str, options: dict[str, Any]) -> nn.Module:
    import timm

    net: nn.Module = timm.create_model(name, pretrained=False, num_classes=0, **options)
    return net


def _narrowed(family: str, cls: str, name: str, changes: dict[str, Any], options: dict[str, Any]) -> nn.Module:
    models = _family(family)
    cfg = (models.cfg_cls if family == "hrnet" else models.model_cfgs)[name]
    cfg = {**cfg, **changes} if isinstance(cfg, dict) else replace(cfg, **changes)
    net: nn.Module = getattr(models, cls)(cfg, num_classes=0, **options)
    return net


def _thinned(family: str, name: str, changes: dict[str, Any], options: dict[str, Any]) -> nn.Module:
    """A network of blocks from a list, an eighth as wide, one block deep a stage where blocks are alike."""

    def thin(block: Any) -> Any:
        if isinstance(block, tuple | list):
            return tuple(thin(b) for b in block[:2])
        return replace(block, d=1, gs=4 if block.gs and block.gs > 1 else block.gs)

    cfg = _family(family).model_cfgs[name]
    blocks = tuple(thin(block) for block in cfg.blocks)
    changes = {"blocks": blocks, "width_factor": 0.125, **changes}
    net: nn.Module = _family("byobnet").ByobNet(replace(cfg, **changes), num_classes=0, **options)
    return net


def _timm(name: str, size: int = 64, refused: str = "", **options: Any) -> Row:
    """A network as timm.create_model makes it, for pictures of `size` by `size`."""
    return name, Public(partial(_created, name, options), (3, size, size), refused=refused)


def _vit(name: str, size: int = 32, **options: Any) -> Row:
    """A plain vision transformer, with two layers of 24 units."""
    tiny = {"img_size": size, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}
    return _timm(name, size, **{**tiny, **options})


def _cfg(family: str, cls: str, name: str, size: int = 64, kept: dict[str, Any] | None = None, **changes: Any) -> Row:
    """A network that its package configures by a record: that record with changes."""
    return name, Public(partial(_narrowed, family, cls, name, changes, kept or {}), (3, size, size))


def _byo(name: str, size: int = 64, family: str = "byobnet", kept: dict[str, Any] | None = None, **changes: Any) -> Row:
    return name, Public(partial(_thinned, family, name, changes, kept or {}), (3, size, size))


def _of(name: str, family: str, cls: str, options: Callable[[Any], dict[str, Any]], size: int = 64) -> Row:
    """A network whose factory fixes its size: the class itself, with what the factory gives it, but smaller."""

    def make() -> nn.Module:
        models = _family(family)
        net: nn.Module = getattr(models, cls)(num_classes=0, **options(models))
        return net

    return name, Public(make, (3, size, size))


def _meta(name: str, **options: Any) -> Row:
    """A network of the MetaFormer family, which differ in what mixes tokens and in their norms, given by name."""

    def given(models: Any) -> dict[str, Any]:
        named = {k: [getattr(models, n) for n in v] if isinstance(v, list) else v for k, v in options.items()}
        return {**STAGES, **named}

    return _of(name, "metaformer", "MetaFormer", given)


def _mix(name: str, mlp_ratio: Any = (0.5, 4.0), **options: str) -> Row:
    tiny = {"img_size": 64, "patch_size": 16, "num_blocks": 2, "embed_dim": 24, "mlp_ratio": mlp_ratio}
    return _of(name, "mlp_mixer", "MlpMixer", lambda m: {**tiny, **{k: getattr(m, v) for k, v in options.items()}})


VGG: list[Any] = [8, "M", 12, "M", 16, 16, "M", 24, 24, "M", 32, 32, "M"]
FLOW = [
    {"in_chs": 64, "out_chs": 16, "stride": 2},
    {"in_chs": 16, "out_chs": 16, "stride": 1},
    {"in_chs": 16, "out_chs": (16, 24, 24), "stride": 2},
    {"in_chs": 24, "out_chs": (24, 32, 32), "no_skip": True, "stride": 1},
]
FOUR: dict[str, Any] = {"layers": (1, 1, 1, 1), "channels": (12, 16, 24, 32)}
PAIRS: dict[str, Any] = {"layers": (2, 1, 1, 1), "channels": (32, 32, 64, 64)}
STAGES: dict[str, Any] = {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)}
BLOCKS: dict[str, Any] = {"depths": (1, 1, 1, 1), "embed_dims": (16, 24, 32, 40)}
HEADS: dict[str, Any] = {"depths": (1, 1, 1, 1), "embed_dims": (16, 32, 48, 64), "num_heads": (1, 2, 3, 4)}
PYRAMID: dict[str, Any] = {"depths": (2, 1, 1, 1), "embed_dim": 16, "num_heads": (2, 2, 4, 4)}
FREE: dict[str, Any] = {"depths": (1, 1, 1, 1), "channels": (16, 24, 32, 40), "stem_chs": 16}

NETS: dict[str, Public] = dict([
    # ---- residual networks: stems, shortcuts, blocks, attention on channels
    _timm("test_resnet"),
    _timm("resnet10t", **FOUR),
    _timm("resnet18", **FOUR),
    _timm("resnet26", **FOUR),
    _timm("resnet26d", **FOUR),
    _timm("resnet26t", **FOUR),
    _timm("resnet50s", **FOUR),
    _timm("resnet50_gn", **PAIRS),
    _timm("resnetaa50d", **FOUR),
    _timm("resnetblur18", **FOUR),
    _timm("resnetrs50", **FOUR),
    _timm("resnext50_32x4d", **FOUR, cardinality=4, base_width=16),
    _timm("ecaresnet26t", **FOUR),
    _timm("ecaresnetlight", **FOUR),
    _timm("seresnet18", **FOUR),
    _timm("seresnext26d_32x4d", **FOUR, cardinality=4, base_width=16),
    _timm("skresnet18", **FOUR),
    _timm("skresnext50_32x4d", **PAIRS, cardinality=4, base_width=16),
    _timm("resnest14d", **FOUR),
    _timm("res2net50_26w_4s", **FOUR),
    _timm("res2net50d", **FOUR),
    _timm("res2next50", **FOUR, cardinality=4, base_width=16),
    _timm("legacy_seresnet18", layers=(1, 1, 1, 1)),
    _timm("tresnet_m", layers=(1, 1, 1, 1), width_factor=0.25),
    _timm("dla34", channels=(8, 8, 12, 16, 24, 32)),
    _timm("dla46x_c", channels=(8, 16, 32, 32, 32, 64), levels=(1, 1, 1, 2, 1, 1)),
    _timm("dla60_res2net", channels=(8, 16, 32, 32, 64, 64), levels=(1, 1, 1, 2, 1, 1)),
    _timm("dpn48b", k_r=16, groups=4, k_sec=(1, 1, 1, 1)),
    _timm("dpn68", k_r=16, groups=4, k_sec=(1, 2, 1, 1)),
    _of("selecsls42", "selecsls", "SelecSls", lambda m: {"cfg": {
        "block": m.SelecSlsBlock, "features": [(32, 0, 16, 16, True, 2), (16, 16, 16, 24, False, 1)],
        "head": [(24, 32, 3, 2), (32, 48, 1, 1)], "num_features": 48, "feature_info": []}}),
    _byo("resnet32ts"),
    _byo("resnext26ts"),
    _byo("gcresnext26ts"),
    _byo("gcresnet33ts"),
    _byo("seresnet33ts"),
    _byo("eca_resnet33ts"),
    _byo("gernet_s", width_factor=0.5),
    _byo("repvgg_a0"),
    _timm("mobileone_s0"),
    _timm("test_byobnet"),
    # ---- normalised otherwise: pre-activation, weight standardisation, evolved norms, no norm
    _timm("resnetv2_18", layers=(1, 1, 1, 1), channels=(16, 24, 32, 40)),
    _timm("resnetv2_50", layers=(1, 1, 1, 1), channels=(16, 24, 32, 40)),
    _timm("resnetv2_50d_gn", layers=(1, 1, 1, 1), channels=(128, 128, 128, 128)),
    _timm("resnetv2_50d_evos", layers=(1, 1, 1, 1), channels=(256, 256, 256, 256)),
    _of("resnetv2_50x1_bit", "resnetv2", "ResNetV2", lambda m: {
        "layers": (1, 1, 1, 1), "channels": (128, 128, 128, 128), "stem_type": "fixed",
        "conv_layer": partial(m.StdConv2d, eps=1e-8)}),
    _timm("test_nfnet"),
    _cfg("nfnet", "NormFreeNet", "nf_resnet26", **FREE),
    _cfg("nfnet", "NormFreeNet", "nf_ecaresnet26", **FREE),
    _cfg("nfnet", "NormFreeNet", "nf_seresnet26", **FREE),
    _cfg("nfnet", "NormFreeNet", "nf_regnet_b0", **FREE, num_features=48),
    _cfg("nfnet", "NormFreeNet", "dm_nfnet_f0", **FREE, group_size=8),
    _cfg("nfnet", "NormFreeNet", "eca_nfnet_l0", **FREE, group_size=8, num_features=48),
    # ---- dense, inception, searched, aggregated
    _timm("densenet121", growth_rate=8, block_config=(2, 2, 2, 2)),
    _timm("densenetblur121d", growth_rate=8, block_config=(2, 2, 2, 2)),
    _timm("rdnet_tiny", num_init_features=16, growth_rates=(8,) * 7),
    _of("vgg11", "vgg", "VGG", lambda m: {"cfg": VGG, "mlp_ratio": 0.01}),
    _of("vgg11_bn", "vgg", "VGG", lambda m: {"cfg": VGG, "mlp_ratio": 0.01, "norm_layer": nn.BatchNorm2d}),
    _timm("inception_v3", 96),
    _timm("inception_next_atto", depths=(1, 1, 1, 1)),
    _timm("xception41", block_cfg=FLOW, norm_layer=nn.BatchNorm2d),
    _timm("xception41p", block_cfg=FLOW, norm_layer=nn.BatchNorm2d),
    _timm("nasnetalarge", stem_size=16, num_features=288, channel_multiplier=2),
    _cfg("hrnet", "HighResolutionNet", "hrnet_w18_small"),
    _cfg("vovnet", "VovNet", "vovnet39a", stem_chs=(8, 8, 12), stage_conv_chs=(8, 8, 8, 8), stage_out_chs=(16, 24, 32,
          40)),
    _cfg("vovnet", "VovNet", "ese_vovnet39b", stem_chs=(8, 8, 12), stage_conv_chs=(8, 8, 8, 8), stage_out_chs=(16, 24,
          32, 40)),
    _cfg("vovnet", "VovNet", "ese_vovnet19b_slim_dw", stem_chs=(8, 8, 12), stage_conv_chs=(8, 8, 8, 8),
          stage_out_chs=(16, 24, 32, 40)),
    _timm("hgnetv2_b0"),
    _timm("cs3darknet_s"),
    _timm("cs3darknet_focus_s"),
    _timm("cspnext_tiny"),
    # ---- mobile
    _timm("test_efficientnet"),
    _timm("test_efficientnet_gn"),
    _timm("test_efficientnet_ln"),
    _timm("test_efficientnet_evos"),
    _timm("efficientnet_lite0"),
    _timm("efficientnet_cc_b0_4e"),
    _timm("mixnet_s"),
    _timm("mnasnet_small"),
    _timm("semnasnet_075"),
    _timm("spnasnet_100"),
    _timm("fbnetc_100"),
    _timm("efficientnet_es"),
    _timm("tinynet_e"),
    _timm("hardcorenas_a"),
    _timm("mobilenetv1_100"),
    _timm("mobilenetv2_035"),
    _timm("mobilenetv3_small_050"),
    _timm("tf_mobilenetv3_small_minimal_100"),
    _timm("mobilenetv4_conv_small_035"),
    _timm("mobilenetv4_hybrid_medium_075"),
    _timm("lcnet_035"),
    _timm("lcnetv2_small"),
    _timm("ghostnet_050"),
    _timm("ghostnetv2_100"),
    _timm("ghostnetv3_050"),
    _timm("repghostnet_050"),
    _timm("rexnet_100"),
    _timm("starnet_s050", base_dim=8, depths=(1, 1, 1, 1)),
    _timm("fasternet_t0", embed_dim=16, depths=(1, 1, 1, 1)),
    _timm("repvit_m0_9", embed_dim=(8, 16, 24, 32), depth=(1, 1, 2, 1)),
    _timm("shvit_s1", embed_dim=(32, 48, 64), partial_dim=(16, 24, 32), depth=(1, 2, 1)),
    _timm("lowformer_b0"),
    _timm("iformer_t"),
    _timm("cpubone_nano"),
    # ---- designed spaces, large kernels
    _cfg("regnet", "RegNet", "regnetx_002", depth=6, w0=16, group_size=8, stem_width=16),
    _cfg("regnet", "RegNet", "regnety_002", depth=6, w0=16, group_size=8, stem_width=16),
    _timm("regnetz_005"),
    _cfg("regnet", "RegNet", "regnetv_040", depth=6, w0=16, group_size=8, stem_width=16),
    _timm("test_convnext"),
    _timm("test_convnext2"),
    _timm("test_convnext3"),
    _timm("convnext_atto", **STAGES),
    _timm("convnext_atto_ols", **STAGES),
    _timm("convnext_zepto_rms", **STAGES),
    _timm("convnextv2_atto", **STAGES),
    _timm("test_mambaout"),
    _timm("mambaout_femto", **STAGES),
    _timm("mambaout_base_plus_rw", **STAGES),
    # ---- convolution and attention
    _byo("botnet26t", family="byoanet", kept={"img_size": 64}),
    _byo("halonet26t", 128, family="byoanet"),
    _byo("lambda_resnet26t", family="byoanet", stem_chs=64),
    _byo("bat_resnext26ts", 256),
    _timm("coat_lite_tiny", img_size=64, embed_dims=(16, 24, 32, 40), serial_depths=(1, 1, 1, 1)),
    _timm("coat_tiny", img_size=64, embed_dims=(24, 24, 24, 24), serial_depths=(1, 1, 1, 1), parallel_depth=1),
    _timm("mobilevit_xxs"),
    _timm("mobilevitv2_050"),
    _timm("edgenext_xx_small", dims=(8, 16, 24, 32), depths=(1, 2, 2, 2)),
    _timm("levit_128s", img_size=64, embed_dim=(32, 48, 64), depth=(1, 1, 1), num_heads=(2, 3, 4)),
    _timm("levit_conv_128s", img_size=64, embed_dim=(32, 48, 64), depth=(1, 1, 1), num_heads=(2, 3, 4)),
    _timm("efficientformer_l1", 224, depths=(1, 1, 1, 2), embed_dims=(8, 16, 24, 32)),
    _timm("efficientformerv2_s0", 64, img_size=64, depths=(1, 1, 2, 2), embed_dims=(8, 16, 24, 32), mlp_ratios=(4, 4,
          (4, 3), (4, 3))),
    _timm("efficientvit_b0"),
    _timm("efficientvit_m0"),
    _timm("efficientvim_m1", embed_dim=(16, 24, 32), depths=(1, 1, 1), state_dim=(9, 9, 9)),
    _timm("fastvit_t8", layers=(1, 1, 1, 1), embed_dims=(16, 16, 32, 32)),
    _timm("fastvit_sa12", layers=(1, 1, 1, 1), embed_dims=(16, 16, 32, 64)),
    _timm("swiftformer_xs", layers=(1, 1, 1, 1), embed_dims=(8, 16, 24, 32)),
    _timm("nextvit_small", depths=(1, 1, 5, 1)),
    _timm("visformer_tiny", img_size=64, init_channels=8, embed_dim=32, depth=(1, 1, 1), num_heads=4, group=4),
    _timm("tiny_vit_5m_224", embed_dims=(16, 32, 32, 64), depths=(1, 1, 2, 1), num_heads=(1, 2, 2, 4)),
    _meta("poolformer_s12", token_mixers=["Pooling"] * 4, mlp_act=nn.GELU, mlp_bias=True, downsample_norm=None,
          norm_layers=["GroupNorm1"] * 4, layer_scale_init_values=(0.5,) * 4, res_scale_init_values=(None,) * 4,
          use_mlp_head=False),
    _meta("poolformerv2_s12", token_mixers=["Pooling"] * 4, norm_layers=["GroupNorm1NoBias"] * 4, use_mlp_head=False),
    _meta("convformer_s18", token_mixers=["SepConv"] * 4, norm_layers=["LayerNorm2dNoBias"] * 4),
    _meta("caformer_s18", dims=(16, 32, 64, 64), token_mixers=["SepConv", "SepConv", "Attention", "Attention"],
          norm_layers=["LayerNorm2dNoBias", "LayerNorm2dNoBias", "LayerNormNoBias", "LayerNormNoBias"]),
    _timm("vit_tiny_r_s16_p8_224", img_size=64, embed_dim=24, depth=2),
    _timm("convit_tiny", 32, img_size=32, patch_size=8, embed_dim=32, depth=3, num_heads=4, local_up_to_layer=2),
    _timm("vitamin_small_224", img_size=64),
    # ---- vision transformers, plain
    _timm("test_vit"),
    _timm("test_vit2"),
    _timm("test_vit3", img_size=64),
    _timm("test_vit4"),
    _timm("test_vit_relpos", img_size=64),
    _vit("vit_tiny_patch16_224"),
    _vit("vit_small_patch16_18x2_224"),
    _vit("vit_base_patch16_siglip_224"),
    _vit("vit_base_patch16_clip_224"),
    _vit("vit_base_patch16_rpn_224"),
    _vit("vit_base_patch14_dinov2"),
    _vit("vit_small_patch14_reg4_dinov2"),
    _vit("vit_relpos_small_patch16_224"),
    _vit("vit_srelpos_small_patch16_224"),
    _vit("aimv2_large_patch14_224"),
    _vit("beit3_base_patch16_224"),
    _vit("flexivit_small"),
    _timm("naflexvit_base_patch16_gap", 32, patch_size=8, embed_dim=24, depth=2, num_heads=3),
    _vit("deit_tiny_patch16_224"),
    _vit("deit_tiny_distilled_patch16_224"),
    _vit("deit3_small_patch16_224"),
    _vit("beit_base_patch16_224"),
    _vit("beitv2_base_patch16_224"),
    _vit("eva_large_patch14_196"),
    _vit("eva02_tiny_patch14_224"),
    _vit("vit_medium_patch16_rope_reg1_gap_256"),
    _vit("vit_small_patch16_rope_mixed_224", num_heads=2, embed_dim=32),
    _vit("vit_small_patch16_dinov3", num_heads=2, embed_dim=32),
    _vit("vit_pe_core_tiny_patch16_384", num_heads=2, embed_dim=32),
    _vit("samvit_base_patch16"),
    _timm("deepseek_vit_412m", 32, img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2),
    _timm("qwen3_vit_88m", 32, img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2),
    _timm("gemma4_vit_167m", 32, img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2),
    # ---- vision transformers, in stages or with tokens of several kinds
    _vit("cait_xxs24_224"),
    _vit("xcit_nano_12_p16_224", 64, patch_size=16, num_heads=3),
    _timm("crossvit_tiny_240", 48, img_size=48, img_scale=(1.0, 2 / 3), embed_dim=(16, 24), depth=((1, 2, 0), (1, 2,
          0)), num_heads=(2, 2), patch_size=(12, 16)),
    _timm("tnt_s_patch16_224", 32, img_size=32, patch_size=16, embed_dim=24, inner_dim=8, depth=2, num_heads_outer=3,
          num_heads_inner=2),
    _timm("tnt_s_legacy_patch16_224", 32, img_size=32, patch_size=16, embed_dim=24, inner_dim=8, depth=2,
          num_heads_outer=3, num_heads_inner=2),
    _timm("pit_ti_224", img_size=64, depth=(1, 1, 1), base_dims=(8, 8, 8), heads=(2, 4, 8)),
    _timm("pit_ti_distilled_224", img_size=64, depth=(1, 1, 1), base_dims=(8, 8, 8), heads=(2, 4, 8)),
    _of("volo_d1", "volo", "VOLO", lambda m: {
        "img_size": 64, "layers": (1, 1, 1, 1), "embed_dims": (24, 32, 32, 32), "num_heads": (2, 4, 4, 4)}),
    _timm("swin_tiny_patch4_window7_224", img_size=64, **PYRAMID),
    _timm("swin_s3_tiny_224", img_size=64, **PYRAMID),
    _timm("swinv2_tiny_window8_256", img_size=64, **PYRAMID),
    _timm("swinv2_cr_tiny_ns_224", img_size=64, **PYRAMID),
    _timm("twins_pcpvt_small", img_size=64, **HEADS),
    _timm("twins_svt_small", img_size=64, **{**HEADS, "depths": (2, 1, 2, 1)}),
    _timm("pvt_v2_b0", **HEADS),
    _timm("pvt_v2_b2_li", **HEADS),
    _cfg("mvitv2", "MultiScaleVit", "mvitv2_tiny", kept={"img_size": 64}, depths=(1, 1, 1, 1), embed_dim=(16, 32, 64,
          128)),
    _cfg("mvitv2", "MultiScaleVit", "mvitv2_small_cls", kept={"img_size": 64}, depths=(1, 1, 1, 1), embed_dim=(16, 32,
          64, 128)),
    _timm("hiera_tiny_224", img_size=64, embed_dim=16, stages=(1, 1, 1, 1)),
    _timm("hieradet_small", 128, embed_dim=16, num_heads=1, stages=(1, 1, 2, 1), global_att_blocks=(3,),
          window_spec=(8, 4, 4, 2)),
    _timm("davit_tiny", depths=(1, 1, 1, 1), embed_dims=(16, 32, 48, 64), num_heads=(1, 2, 3, 4)),
    _of("focalnet_tiny_srf", "focalnet", "FocalNet", lambda m: {"depths": (1, 1, 1, 1), "embed_dim": 16}),
    _timm("gcvit_xxtiny", img_size=64, embed_dim=16),
    _of("nest_tiny", "nest", "Nest", lambda m: {
        "img_size": 32, "embed_dims": (16, 24, 32), "depths": (1, 1, 1), "num_heads": (2, 3, 4)}, 32),
    # ---- without attention
    _mix("mixer_s32_224"),
    _mix("gmixer_12_224", mlp_layer="GluMlp"),
    _mix("gmlp_ti16_224", 6, block_layer="SpatialGatingBlock", mlp_layer="GatedMlp"),
    _mix("resmlp_12_224", 4, block_layer="ResBlock", norm_layer="Affine"),
    _timm("sequencer2d_s", layers=(1, 1, 1, 1), embed_dims=(16, 24, 32, 32), hidden_sizes=(6, 8, 8, 8)),
])  # fmt: skip
