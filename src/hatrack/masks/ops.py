"""The operators that the tracer knows, by what they do to units. Names are ATen's, without overload."""

from __future__ import annotations

# Rearrange entries: running the very operator on the unit numbers tells which unit goes where.
REARRANGE = frozenset(
    """view reshape _unsafe_view flatten unflatten permute transpose t numpy_T mT squeeze unsqueeze expand
    expand_as repeat tile contiguous clone alias detach slice select split split_with_sizes chunk unbind narrow
    flip roll index_select movedim moveaxis swapaxes cat concat stack hstack vstack repeat_interleave
    pixel_shuffle channel_shuffle view_as reshape_as getitem to _to_copy lift_fresh_copy type_as float
    tensor_split unsafe_split unsafe_chunk detach_""".split()
)

# Act on each entry by itself: the unit stays.
POINTWISE = frozenset(
    """relu relu6 gelu silu sigmoid tanh elu celu selu leaky_relu hardswish hardsigmoid hardtanh softplus mish
    exp expm1 log log1p neg abs sqrt rsqrt square pow clamp clamp_min clamp_max dropout feature_dropout
    alpha_dropout native_dropout erf sin cos reciprocal sign round floor threshold softsign logsigmoid
    log_sigmoid softshrink hardshrink rrelu nan_to_num""".split()
)

# Pointwise (or a rearrangement) and f(a·x) = a·f(x) for a ≥ 0: gating before is the same as gating after.
HOMOGENEOUS = REARRANGE | frozenset("relu leaky_relu neg dropout feature_dropout abs".split())

# Act on two tensors entry by entry: the units of both become one.
BINARY = frozenset(
    """add sub rsub mul div true_divide maximum minimum fmax fmin where lerp addcmul addcdiv atan2 hypot pow
    remainder copysign""".split()
)

# Mix the last k axes (space), each unit by itself.
SPATIAL = {
    "max_pool1d": 1, "max_pool2d": 2, "max_pool3d": 3, "avg_pool1d": 1, "avg_pool2d": 2, "avg_pool3d": 3,
    "max_pool2d_with_indices": 2, "max_pool3d_with_indices": 3, "max_pool1d_with_indices": 1,
    "adaptive_avg_pool1d": 1, "adaptive_avg_pool2d": 2, "adaptive_avg_pool3d": 3, "_adaptive_avg_pool2d": 2,
    "adaptive_max_pool1d": 1, "adaptive_max_pool2d": 2, "adaptive_max_pool3d": 3,
    "upsample_nearest1d": 1, "upsample_nearest2d": 2, "upsample_nearest3d": 3, "upsample_linear1d": 1,
    "upsample_bilinear2d": 2, "upsample_bicubic2d": 2, "upsample_trilinear3d": 3,
    "_upsample_bilinear2d_aa": 2, "upsample_nearest_exact2d": 2, "_upsample_nearest_exact2d": 2,
    "reflection_pad1d": 1, "reflection_pad2d": 2, "replication_pad1d": 1, "replication_pad2d": 2,
    "lp_pool2d": 2,
}  # fmt: skip

# Collapse whole axes.
REDUCE = frozenset("mean sum amax amin max min var std norm linalg_vector_norm logsumexp prod".split())

# Mix along one axis and keep the shape.
ALONG = frozenset("softmax _softmax log_softmax _log_softmax cumsum cumprod normalize".split())

# Make or inspect tensors without looking at any unit's value.
SHAPE_ONLY = frozenset(
    """zeros ones full arange zeros_like ones_like full_like empty empty_like new_zeros new_ones new_full
    scalar_tensor sym_size sym_numel eye linspace rand randn rand_like randn_like tril triu""".split()
)

CONVOLUTIONS = {"conv1d": 1, "conv2d": 2, "conv3d": 3, "conv_transpose1d": 1, "conv_transpose2d": 2,
                "conv_transpose3d": 3}  # fmt: skip
