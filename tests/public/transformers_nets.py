"""transformers: text, pictures, sound and series; random weights, two layers of a few units.

Its models take several tensors and return a record; here each maps one tensor (word numbers, pixels, samples) to the
mean of its last hidden state over tokens or places.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .architectures import Public, Row

WORDS = 40


class Features(nn.Module):
    """A model's last hidden state, averaged over everything but samples and channels.

    `also` holds what the model is given besides its input: values, or functions of the input.
    """

    def __init__(self, model: nn.Module, given: str, taken: str, also: dict[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.given = given
        self.taken = taken
        self.also = also

    def forward(self, x: Tensor) -> Tensor:
        also = {name: value(x) if callable(value) else value for name, value in self.also.items()}
        hidden: Tensor = self.model(**{self.given: x}, **also)[self.taken]
        if hidden.ndim == 4:
            return hidden.mean((2, 3))
        return hidden.mean(1) if hidden.ndim == 3 else hidden


def _made(
    cls: str, config: dict[str, Any], part: str, given: str, taken: str, also: dict[str, Any], attention: str
) -> nn.Module:
    import transformers

    kind = getattr(transformers, cls)
    settings = kind.config_class(**config)
    if attention:
        settings._attn_implementation = attention
    model = kind(settings)
    if part:
        model = model.get_submodule(part)
    return Features(model, given, taken, also)


def _net(
    cls: str,
    label: str = "",
    *,
    shape: tuple[int, ...],
    given: str,
    tokens: int = 0,
    part: str = "",
    taken: str = "last_hidden_state",
    also: dict[str, Any] | None = None,
    attention: str = "",
    refused: str = "",
    **config: Any,
) -> Row:
    make = partial(_made, cls, config, part, given, taken, also or {}, attention)
    return f"{cls}{f' {label}' if label else ''}", Public(make, shape, tokens=tokens, refused=refused)


SMALL: dict[str, Any] = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 32,
}  # fmt: skip


def _text(cls: str, label: str = "", length: int = 8, **options: Any) -> Row:
    """A network over words, in the names that most configurations share."""
    usual = {**SMALL, "vocab_size": WORDS, "max_position_embeddings": 32, "use_cache": False}
    return _words(cls, label, length, **{**usual, **options})


def _words(cls: str, label: str = "", length: int = 8, **options: Any) -> Row:
    return _net(cls, label, shape=(length,), given="input_ids", tokens=WORDS, **options)


def _decoder(cls: str, label: str = "", **options: Any) -> Row:
    """A language model with grouped queries, four heads of eight units and one of keys for two of queries."""
    usual = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0}
    return _text(cls, label, **{**usual, **options})


def _picture(cls: str, label: str = "", size: int = 32, **options: Any) -> Row:
    return _net(cls, label, **{"shape": (3, size, size), "given": "pixel_values", **options})


def _patches(cls: str, label: str = "", size: int = 32, **options: Any) -> Row:
    """A vision transformer, in the names that most configurations share."""
    return _picture(cls, label, size, **{**SMALL, "image_size": size, "patch_size": 8, **options})


def _sound(cls: str, label: str = "", length: int = 400, **options: Any) -> Row:
    """A speech network that begins with convolutions over samples."""
    usual = {
        "conv_dim": (8, 12, 16), "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 2), "num_feat_extract_layers": 3,
        "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2, "mask_time_prob": 0.0, "layerdrop": 0.0,
    }  # fmt: skip
    return _net(cls, label, shape=(length,), given="input_values", **{**SMALL, **usual, **options})


T5: dict[str, Any] = {"vocab_size": WORDS, "d_model": 24, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 3}
GPT: dict[str, Any] = {"vocab_size": WORDS, "n_positions": 32, "n_embd": 24, "n_layer": 2, "n_head": 3}
MASK: dict[str, Any] = {"attention_mask": torch.ones_like}  # left out, it is made unless the network is being traced
OFF: dict[str, Any] = {"use_cache": False}
BART: dict[str, Any] = {
    "vocab_size": WORDS, "d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 3,
    "decoder_attention_heads": 3, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 32,
}  # fmt: skip
MOE: dict[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 2}
STAGED: dict[str, Any] = {"hidden_sizes": (12, 16, 24, 32), "depths": (1, 1, 1, 1)}
WINDOWS: dict[str, Any] = {"embed_dim": 12, "depths": (2, 1), "num_heads": (2, 3), "window_size": 4, "image_size": 32}

NETS: dict[str, Public] = dict([
    # ---- words, both ways
    _text("BertModel"),
    _text("BertModel", "eager", attention="eager"),
    _text("BertModel", "pooled", taken="pooler_output"),
    _text("BertGenerationEncoder"),
    _text("RobertaModel"),
    _text("RobertaPreLayerNormModel"),
    _text("XLMRobertaModel"),
    _text("XLMRobertaXLModel"),
    _text("XmodModel",
          refused="how many words go to which language, only the data say",
          default_language="en_XX", languages=("en_XX",)),
    _text("CamembertModel"),
    _text("Data2VecTextModel"),
    _text("AlbertModel", embedding_size=12),
    _text("ElectraModel", embedding_size=12),
    _text("ErnieModel"),
    _text("MegatronBertModel"),
    _text("RoFormerModel", embedding_size=12),
    _text("RemBertModel", input_embedding_size=12, output_embedding_size=12),
    _text("ConvBertModel", embedding_size=12, hidden_size=32, num_attention_heads=4, head_ratio=2, conv_kernel_size=3),
    _text("SqueezeBertModel", embedding_size=24, q_groups=3, k_groups=3, v_groups=3, intermediate_groups=2,
          output_groups=2),
    _text("MobileBertModel", embedding_size=12, intra_bottleneck_size=12, hidden_size=24, num_attention_heads=3),
    _text("IBertModel"),
    _text("MPNetModel"),
    _text("NystromformerModel",
          refused="being traced, it makes a mask that its own landmarks do not fit",
          num_landmarks=4, segment_means_seq_len=8),
    _text("LongformerModel", refused="it asks the data whether any token attends to all", attention_window=4),
    _text("BigBirdModel", attention_type="original_full"),
    _text("YosoModel", use_expectation=True),
    _text("MraModel"),
    _text("SplinterModel"),
    _text("LayoutLMModel", max_2d_position_embeddings=16),
    _text("LiltModel", max_2d_position_embeddings=16, channel_shrink_ratio=2, hidden_size=24, num_attention_heads=2),
    _text("MarkupLMModel"),
    _text("LukeModel", entity_vocab_size=8, entity_emb_size=8),
    _text("TapasModel"),
    _text("EsmModel", pad_token_id=1, mask_token_id=2),
    _text("CanineModel", length=16, num_hash_buckets=16, local_transformer_stride=8, downsampling_rate=4),
    _text("DebertaModel", relative_attention=True, pos_att_type=["c2p", "p2c"]),
    _text("DebertaV2Model", relative_attention=True, pos_att_type=["c2p", "p2c"]),
    _text("DebertaV2Model", "as v3", relative_attention=True, pos_att_type=["c2p", "p2c"], norm_rel_ebd="layer_norm",
          position_buckets=8, share_att_key=True, position_biased_input=False),
    _text("ModernBertModel", pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2),
    _text("EuroBertModel", num_key_value_heads=1, pad_token_id=0, bos_token_id=1, eos_token_id=2),
    _text("NomicBertModel", hidden_size=48),
    _text("FNetModel"),
    _words("DistilBertModel", vocab_size=WORDS, dim=24, n_layers=2, n_heads=3, hidden_dim=32,
          max_position_embeddings=32),
    _words("FunnelModel", vocab_size=WORDS, d_model=24, n_head=3, d_head=8, d_inner=32, block_sizes=[1, 1],
          num_decoder_layers=1),
    _words("XLNetModel", vocab_size=WORDS, d_model=24, n_layer=2, n_head=3, d_inner=32),
    _words("XLMModel", vocab_size=WORDS, emb_dim=24, n_layers=2, n_heads=3, max_position_embeddings=32,
          use_cache=False),
    _words("FlaubertModel", vocab_size=WORDS, emb_dim=24, n_layers=2, n_heads=3, max_position_embeddings=32,
          use_cache=False),
    _words("T5EncoderModel", **T5),
    _words("T5EncoderModel", "gated", **T5, feed_forward_proj="gated-gelu"),
    _words("MT5EncoderModel", **T5),
    _words("UMT5EncoderModel", **T5),
    _words("LongT5EncoderModel", length=16, **T5, local_radius=3, encoder_attention_type="local", also=MASK),
    _words("SwitchTransformersEncoderModel",
          refused="its router converts its own parameters in forward",
          **T5, num_experts=3, num_sparse_encoder_layers=1, also=MASK),
    _words("BartModel", "encoder", part="encoder", **BART),
    _words("BartModel", **BART, **OFF),
    _words("MBartModel", "encoder", part="encoder", **BART),
    _words("PegasusModel", "encoder", part="encoder", **BART),
    _words("M2M100Model", "encoder", part="encoder", **BART),
    _words("CLIPTextModel", **SMALL, vocab_size=WORDS, max_position_embeddings=32),
    _words("SiglipTextModel", **SMALL, vocab_size=WORDS, max_position_embeddings=32),
    _net("PerceiverModel", shape=(10, 16), given="inputs", d_model=16, d_latents=24, num_latents=6,
         num_self_attends_per_block=2, num_blocks=1, num_self_attention_heads=2, num_cross_attention_heads=2),
    # ---- words, from left to right
    _words("GPT2Model", **GPT),
    _words("GPT2Model", "without cache", **GPT, **OFF),
    _words("GPT2Model", "eager, without cache", **GPT, **OFF, attention="eager"),
    _words("OpenAIGPTModel", **GPT),
    _words("CTRLModel", vocab_size=WORDS, n_positions=32, n_embd=24, n_layer=2, n_head=3, dff=32, **OFF),
    _words("GPTBigCodeModel", **GPT, **OFF),
    _words("GPTJModel", vocab_size=WORDS, n_positions=32, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, **OFF),
    _words("CodeGenModel", vocab_size=WORDS, n_positions=32, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, **OFF),
    _text("GPTNeoModel", num_layers=2, num_heads=3, attention_types=[[["global", "local"], 1]], window_size=4),
    _text("GPTNeoXModel"),
    _text("OPTModel", ffn_dim=32, word_embed_proj_dim=24),
    _text("OPTModel", "projected", ffn_dim=32, word_embed_proj_dim=12, do_layer_norm_before=False),
    _words("BloomModel", vocab_size=WORDS, hidden_size=24, n_layer=2, n_head=3, **OFF),
    _text("FalconModel"),
    _text("FalconModel", "alibi", alibi=True),
    _text("FalconModel", "new decoder", new_decoder_architecture=True, num_kv_heads=1),
    _words("MptModel", vocab_size=WORDS, d_model=24, n_layers=2, n_heads=3, max_seq_len=32, **OFF),
    _text("BioGptModel"),
    _words("XGLMModel", vocab_size=WORDS, d_model=24, num_layers=2, attention_heads=3, ffn_dim=32, **OFF),
    _text("ImageGPTModel", n_embd=24, n_layer=2, n_head=3, n_positions=32),
    _decoder("LlamaModel"),
    _decoder("LlamaModel", "eager", attention="eager"),
    _decoder("MistralModel", sliding_window=4),
    _decoder("MixtralModel", **MOE),
    _decoder("Qwen2Model"),
    _decoder("Qwen3Model", head_dim=8),
    _decoder("Qwen2MoeModel", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
          shared_expert_intermediate_size=16),
    _decoder("GemmaModel", head_dim=8),
    _decoder("Gemma2Model", head_dim=8, sliding_window=4),
    _decoder("Gemma3TextModel", head_dim=8, sliding_window=4),
    _decoder("PhiModel"),
    _decoder("Phi3Model"),
    _decoder("StableLmModel"),
    _decoder("StableLmModel", "parallel", use_parallel_residual=True, qk_layernorm=True),
    _decoder("OlmoModel"),
    _decoder("Olmo2Model"),
    _decoder("CohereModel"),
    _decoder("GraniteModel"),
    _decoder("GraniteMoeModel", **MOE),
    _decoder("Starcoder2Model"),
    _decoder("PersimmonModel"),
    _decoder("NemotronModel"),
    _decoder("GlmModel", head_dim=8),
    _decoder("HeliumModel", head_dim=8),
    _decoder("SmolLM3Model"),
    _decoder("DiffLlamaModel"),
    _decoder("BitNetModel"),
    _decoder("Lfm2Model", layer_types=["conv", "full_attention"]),
    _decoder("GptOssModel", head_dim=8, **MOE),
    _decoder("RecurrentGemmaModel", lru_width=32, head_dim=8, attention_window_size=8, block_types=("recurrent",
          "attention")),
    _words("MambaModel", vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, state_size=4, time_step_rank=4, **OFF),
    _words("Mamba2Model", vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, state_size=4, num_heads=4, head_dim=8,
           n_groups=1, chunk_size=4, **OFF),
    _words("FalconMambaModel", vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, state_size=4, time_step_rank=4,
          **OFF),
    _words("RwkvModel", vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, attention_hidden_size=16,
           intermediate_size=32, refused="in evaluation it rescales its own weights", **OFF),
    _words("ReformerModel", length=8, vocab_size=WORDS, hidden_size=16, num_attention_heads=2, attention_head_size=8,
           feed_forward_size=32, attn_layers=["local", "local"], axial_pos_embds=False, max_position_embeddings=16,
           local_attn_chunk_length=4, is_decoder=False, **OFF),
    # ---- pictures
    _patches("ViTModel"),
    _patches("ViTModel", "pooled", taken="pooler_output"),
    _patches("ViTMSNModel"),
    _patches("DeiTModel"),
    _patches("BeitModel", use_relative_position_bias=True),
    _patches("BeitModel", "shared bias", use_shared_relative_position_bias=True, use_mask_token=True),
    _patches("Data2VecVisionModel", use_relative_position_bias=True),
    _patches("Dinov2Model", mlp_ratio=2),
    _patches("Dinov2Model", "gated", mlp_ratio=2, use_swiglu_ffn=True),
    _patches("Dinov2WithRegistersModel", mlp_ratio=2),
    _patches("DINOv3ViTModel", num_attention_heads=2, hidden_size=32),
    _patches("IJepaModel"),
    _patches("VitDetModel"),
    _patches("YolosModel", image_size=(32, 32), num_detection_tokens=3),
    _patches("SiglipVisionModel"),
    _patches("SiglipVisionModel", "pooled", taken="pooler_output"),
    _patches("CLIPVisionModel"),
    _patches("Aimv2VisionModel"),
    _patches("BlipVisionModel"),
    _patches("AltCLIPVisionModel"),
    _patches("SamVisionModel", mlp_dim=32, output_channels=16, window_size=2, global_attn_indexes=(1,),
          num_pos_feats=8),
    _picture("SwinModel", **WINDOWS),
    _picture("Swinv2Model", **WINDOWS),
    _picture("ConvNextModel", size=64, **STAGED),
    _picture("ConvNextV2Model", size=64, **STAGED),
    _picture("SegformerModel", size=64, hidden_sizes=(8, 16, 24, 32), depths=(1, 1, 1, 1), num_attention_heads=(1, 2,
          3, 4)),
    _picture("PvtModel", size=64, image_size=64, hidden_sizes=(8, 16, 24, 32), depths=(1, 1, 1, 1),
          num_attention_heads=(1, 2, 3, 4)),
    _picture("PvtV2Model", size=64, image_size=64, hidden_sizes=(8, 16, 24, 32), depths=(1, 1, 1, 1),
          num_attention_heads=(1, 2, 3, 4)),
    _picture("CvtModel", size=64, embed_dim=[8, 16, 24], num_heads=[1, 2, 3], depth=[1, 2, 3], cls_token=[False,
          False, True]),
    _picture("PoolFormerModel", size=64, **STAGED),
    _picture("SwiftFormerModel", size=64, embed_dims=(8, 16, 24, 32), depths=(1, 1, 1, 1)),
    _picture("FocalNetModel", image_size=32, embed_dim=12, depths=(1, 1), focal_levels=(2, 2), focal_windows=(3, 3),
          hidden_sizes=(12, 24)),
    _picture("HieraModel", size=64, image_size=(64, 64), embed_dim=8, depths=(1, 1, 1), num_heads=(1, 2, 4),
          num_query_pool=2),
    _picture("LevitModel", size=64, image_size=64, hidden_sizes=(16, 24, 32), num_attention_heads=(2, 3, 4),
          depths=(1, 1, 1),
             key_dim=(8, 8, 8)),
    _picture("ResNetModel", size=64, embedding_size=8, **STAGED, layer_type="bottleneck"),
    _picture("RegNetModel", size=64, embedding_size=8, **STAGED, groups_width=4),
    _picture("BitModel", size=64, embedding_size=32, hidden_sizes=(128, 128, 128, 128), depths=(1, 1, 1, 1)),
    _picture("MobileNetV1Model", size=64, depth_multiplier=0.125),
    _picture("MobileNetV2Model", size=64, depth_multiplier=0.125),
    _picture("MobileViTModel", size=64, hidden_sizes=(16, 24, 32), neck_hidden_sizes=(4, 4, 8, 8, 16, 24, 32)),
    _picture("MobileViTV2Model", size=64, width_multiplier=0.25),
    _picture("EfficientNetModel", size=64, width_coefficient=0.25, depth_coefficient=0.25, hidden_dim=320),
    _picture("DINOv3ConvNextModel", size=64, hidden_sizes=[12, 16, 24, 32], depths=[1, 1, 1, 1]),
    _picture("TextNetModel", size=64, stem_out_channels=8, hidden_sizes=(8, 8, 16, 16, 24)),
    _picture("GLPNModel", size=64, hidden_sizes=(8, 16, 24, 32), depths=(1, 1, 1, 1), num_attention_heads=(1, 2, 3, 4)),
    _patches("TimesformerModel", shape=(2, 3, 32, 32), num_frames=2),
    _patches("VideoMAEModel", shape=(2, 3, 32, 32), num_frames=2, tubelet_size=2),
    _patches("VivitModel", shape=(2, 3, 32, 32), num_frames=2, tubelet_size=(2, 8, 8)),
    # ---- sound and series
    _sound("Wav2Vec2Model"),
    _sound("Wav2Vec2Model", "stable", do_stable_layer_norm=True, feat_extract_norm="layer"),
    _sound("HubertModel"),
    _sound("WavLMModel"),
    _sound("UniSpeechModel"),
    _sound("UniSpeechSatModel"),
    _sound("Data2VecAudioModel", conv_pos_kernel_size=3),
    _sound("SEWModel", squeeze_factor=2),
    _sound("SEWDModel", squeeze_factor=2, pos_att_type=("c2p", "p2c"), max_position_embeddings=32, position_buckets=8),
    _sound("Wav2Vec2ConformerModel", conv_depthwise_kernel_size=3),
    _net("Wav2Vec2BertModel", shape=(12, 16), given="input_features", **SMALL, feature_projection_input_dim=16,
         conv_depthwise_kernel_size=3, layerdrop=0.0, mask_time_prob=0.0),
    _net("WhisperModel", "encoder", shape=(8, 16), given="input_features", part="encoder", d_model=24, encoder_layers=2,
         encoder_attention_heads=3, encoder_ffn_dim=32, decoder_layers=1, decoder_attention_heads=3, decoder_ffn_dim=32,
         num_mel_bins=8, max_source_positions=8, vocab_size=WORDS, pad_token_id=0),
    _net("Speech2TextModel", "encoder", shape=(16, 8), given="input_features", part="encoder", d_model=24,
          encoder_layers=2,
         encoder_attention_heads=3, encoder_ffn_dim=32, decoder_layers=1, decoder_attention_heads=3, decoder_ffn_dim=32,
         input_feat_per_channel=8, conv_channels=16, max_source_positions=16, vocab_size=WORDS),
    _net("MoonshineModel", "encoder", shape=(1200,), given="input_values", part="encoder", hidden_size=32,
          vocab_size=WORDS,
         encoder_num_hidden_layers=2, decoder_num_hidden_layers=1, encoder_num_attention_heads=2,
          decoder_num_attention_heads=2,
         intermediate_size=32),
    _net("ASTModel", shape=(32, 16), given="input_values", **SMALL, patch_size=8, frequency_stride=8, time_stride=8,
         max_length=32, num_mel_bins=16),
    _net("PatchTSTModel", shape=(24, 3), given="past_values", num_input_channels=3, context_length=24, patch_length=4,
         patch_stride=4, d_model=16, num_attention_heads=2, num_hidden_layers=2, ffn_dim=24),
    _net("PatchTSMixerModel", shape=(24, 3), given="past_values", num_input_channels=3, context_length=24,
          patch_length=4,
         patch_stride=4, d_model=16, num_layers=2),
])  # fmt: skip
