"""The operators that need no rule of their own, by what they do to units. Names are ATen's, without overload."""

from __future__ import annotations

# Rearrange the entries of one tensor: running the very operator on the unit numbers tells which unit goes where.
REARRANGE = frozenset(
    """view reshape _unsafe_view flatten unflatten permute transpose t numpy_T mT adjoint squeeze unsqueeze expand
    expand_as repeat tile contiguous clone alias detach slice select split split_with_sizes chunk unbind narrow
    flip roll movedim moveaxis swapaxes swapdims repeat_interleave pixel_shuffle pixel_unshuffle channel_shuffle
    view_as reshape_as to _to_copy lift_fresh_copy type_as float tensor_split unsafe_split unsafe_chunk diagonal
    unfold index index_select gather atleast_2d rot90""".split()
)

# The same, of several tensors.
JOIN = frozenset("cat concat concatenate stack hstack vstack dstack slice_scatter select_scatter copy".split())

# Of these only the shape of the second tensor matters.
LIKE_THE_SECOND = frozenset("expand_as view_as reshape_as type_as".split())

# Of these the second tensor says which entries are taken.
PICK = frozenset("index index_select gather".split())

# Copies that only change type or place.
CAST = frozenset("to _to_copy type_as float contiguous clone alias detach lift_fresh_copy".split())

# Of these the result never shares memory with what went in.
COPIES = frozenset(
    """repeat tile clone flip roll repeat_interleave pixel_shuffle pixel_unshuffle channel_shuffle _to_copy
    lift_fresh_copy index index_select gather rot90""".split()
)

# Act on each entry by itself: the unit stays.
POINTWISE = frozenset(
    """relu relu6 gelu silu sigmoid tanh elu celu selu leaky_relu hardswish hardsigmoid hardtanh softplus mish
    exp exp2 expm1 log log2 log10 log1p neg abs sqrt rsqrt square clamp clamp_min clamp_max clip dropout
    feature_dropout alpha_dropout feature_alpha_dropout native_dropout erf erfc sin cos sinh cosh tan atan asin acos
    reciprocal sign sgn round floor ceil trunc frac threshold softsign logsigmoid log_sigmoid softshrink hardshrink
    tanhshrink rrelu nan_to_num logical_not isnan isinf isfinite bitwise_not sinc""".split()
)

# f(a·x) = a·f(x) for a ≥ 0: a gate before is a gate after.
HOMOGENEOUS = frozenset("relu leaky_relu neg dropout feature_dropout abs".split())

# Act on several tensors entry by entry: the units that meet become one.
BINARY = frozenset(
    """add sub subtract rsub mul multiply div divide true_divide floor_divide maximum minimum fmax fmin where lerp
    addcmul addcdiv atan2 hypot pow remainder fmod copysign masked_fill xlogy logaddexp gt ge lt le eq ne
    logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor heaviside""".split()
)

# Mix the last k axes (space), each unit by itself.
SPATIAL = {
    "max_pool1d": 1, "max_pool2d": 2, "max_pool3d": 3, "avg_pool1d": 1, "avg_pool2d": 2, "avg_pool3d": 3,
    "max_pool2d_with_indices": 2, "max_pool3d_with_indices": 3, "max_pool1d_with_indices": 1,
    "adaptive_avg_pool1d": 1, "adaptive_avg_pool2d": 2, "adaptive_avg_pool3d": 3, "_adaptive_avg_pool2d": 2,
    "adaptive_max_pool1d": 1, "adaptive_max_pool2d": 2, "adaptive_max_pool3d": 3,
    "upsample_nearest1d": 1, "upsample_nearest2d": 2, "upsample_nearest3d": 3, "upsample_linear1d": 1,
    "upsample_bilinear2d": 2, "upsample_bicubic2d": 2, "upsample_trilinear3d": 3, "_upsample_bilinear2d_aa": 2,
    "_upsample_bicubic2d_aa": 2, "upsample_nearest_exact2d": 2, "_upsample_nearest_exact2d": 2,
    "reflection_pad1d": 1, "reflection_pad2d": 2, "replication_pad1d": 1, "replication_pad2d": 2,
}  # fmt: skip

# Collapse whole axes.
REDUCE = frozenset(
    "mean sum amax amin max min var std var_mean std_mean norm linalg_vector_norm logsumexp prod any all".split()
)

# Mix along one axis and keep the shape.
ALONG = frozenset("softmax _softmax log_softmax _log_softmax softmin cumsum cumprod logcumsumexp".split())

# Make or inspect tensors without looking at any unit's value.
SHAPE_ONLY = frozenset(
    """zeros ones full arange zeros_like ones_like full_like empty empty_like new_zeros new_ones new_full new_empty
    scalar_tensor sym_size sym_numel sym_stride eye linspace rand randn rand_like randn_like
    _assert_tensor_metadata _assert_scalar _assert_async""".split()
)

RANDOM = frozenset("rand randn rand_like randn_like empty empty_like new_empty".split())

# axes of space
CONVOLUTIONS = {
    "conv1d": 1, "conv2d": 2, "conv3d": 3, "conv_transpose1d": 1, "conv_transpose2d": 2, "conv_transpose3d": 3,
}  # fmt: skip

# Layers with a state from step to step, and how many blocks of rows their weights have.
RECURRENT = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}

# May return their input itself, so that writing into the one writes into the other.
MAY_ALIAS = REARRANGE - COPIES | {"getitem", "dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"}
