"""Calls of ATen's operators, at least one for each converter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class TensorArgument:
    """A tensor among the arguments of a case.

    Attributes:
        shape: shape of the tensor.
        kind: `float`, `positive`, `share` (from -0.95 to 0.95), `int` (below `high`), `bool`, `mask` (0 or -infinity),
            `bits` (any int32).
        constant: whether it is known before the graph runs.
        high: bound of integers, excluded.
    """

    shape: tuple[int, ...]
    kind: str = "float"
    constant: bool = False
    high: int = 2

    def draw(self, generator: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
        """Random elements; `dtype` is that of floats."""
        if self.kind == "int":
            return torch.randint(0, self.high, self.shape, generator=generator)
        if self.kind == "bits":
            return torch.randint(-(2**31), 2**31, self.shape, generator=generator, dtype=torch.int32)
        if self.kind == "bool":
            return torch.rand(self.shape, generator=generator) < 0.6
        found = torch.randn(self.shape, generator=generator)
        if self.kind == "share":
            return (torch.rand(self.shape, generator=generator) * 1.9 - 0.95).to(dtype)
        if self.kind == "mask":
            return torch.where(found < 0.5, 0.0, -torch.inf).to(dtype)
        return (found.abs() + 0.1 if self.kind == "positive" else found).to(dtype)


def x(*shape: int) -> TensorArgument:
    """Numbers that the caller gives."""
    return TensorArgument(shape)


def p(*shape: int) -> TensorArgument:
    """Positive ones."""
    return TensorArgument(shape, "positive")


def m(*shape: int) -> TensorArgument:
    """Numbers between -1 and 1."""
    return TensorArgument(shape, "share")


def w(*shape: int) -> TensorArgument:
    """Weights."""
    return TensorArgument(shape, constant=True)


def v(*shape: int) -> TensorArgument:
    """Positive weights, such as variances."""
    return TensorArgument(shape, "positive", constant=True)


def bits(*shape: int) -> TensorArgument:
    """Integers of 32 bits."""
    return TensorArgument(shape, "bits")


def i(high: int, *shape: int) -> TensorArgument:
    """Integers below `high`."""
    return TensorArgument(shape, "int", high=high)


def ci(high: int, *shape: int) -> TensorArgument:
    """Integers below `high` that are known."""
    return TensorArgument(shape, "int", True, high)


def b(*shape: int) -> TensorArgument:
    """Truth values."""
    return TensorArgument(shape, "bool")


def _layers(
    gates: int, size: int, width: int, depth: int, directions: int = 1, biases: bool = True
) -> list[TensorArgument]:
    """Weights of recurrent layers, in the order of `torch.nn.LSTM`."""
    found = []
    for layer in range(depth):
        wide = size if layer == 0 else directions * width
        shapes = [(gates * width, wide), (gates * width, width)] + [(gates * width,)] * (2 * biases)
        found += [w(*shape) for _ in range(directions) for shape in shapes]
    return found


Args = tuple[Any, ...]
_UNARY = "relu sigmoid tanh exp erf abs floor neg ceil round sign isnan isinf gelu silu mish hardswish hardsigmoid"
_UNARY += " log_sigmoid log_sigmoid_forward expm1 exp2 clone alias detach contiguous lift_fresh_copy _to_copy"
_UNARY += " sin cos tan atan sinh cosh asinh"
_POSITIVE = "acosh log sqrt rsqrt reciprocal log1p log2 log10"
_ARITHMETIC = "add sub mul div"
_COMPARISONS = "eq ne lt le gt ge"

CASES: dict[str, list[Args]] = {
    **{f"{name}.default": [(x(3, 5),)] for name in _UNARY.split()},
    **{f"{name}.default": [(p(3, 5),)] for name in _POSITIVE.split()},
    **{f"{name}.Tensor": [(x(3, 5), p(5)), (x(3, 5), 2.5), (i(9, 3, 5), p(5))] for name in _ARITHMETIC.split()},
    **{f"{name}.Scalar": [(x(3, 5), 2.5)] for name in _ARITHMETIC.split()},
    **{f"rsub.{kind}": [(x(3, 5), 2.5 if kind == "Scalar" else x(5))] for kind in ("Tensor", "Scalar")},
    **{f"{name}.Tensor": [(i(3, 3, 5), i(3, 5)), (x(3, 5), i(2, 5))] for name in _COMPARISONS.split()},
    **{f"{name}.Scalar": [(i(3, 3, 5), 1), (x(3, 5), 0.5)] for name in _COMPARISONS.split()},
    **{f"logical_{name}.default": [(b(3, 5), b(5)), (x(3, 5), b(5))] for name in ("and", "or", "xor")},
    **{f"bitwise_{name}.Tensor": [(b(3, 5), b(5)), (bits(3, 5), bits(5))] for name in ("and", "or", "xor")},
    **{f"bitwise_{name}.Scalar": [(b(3, 5), True), (bits(3, 5), -77)] for name in ("and", "or", "xor")},
    "logical_not.default": [(b(3, 5),), (x(3, 5),)],
    "bitwise_not.default": [(b(3, 5),), (bits(3, 5),)],
    "maximum.default": [(x(3, 5), x(5)), (i(9, 4), i(9, 4))],
    "minimum.default": [(x(3, 5), x(5))],
    "div.Tensor_mode": [(x(3, 5), p(5), {"rounding_mode": mode}) for mode in ("floor", "trunc")],
    "floor_divide.default": [(x(3, 5), p(5)), (x(3, 5), -0.1)],
    "fmod.Scalar": [(x(3, 5), -0.7)],
    "fmod.Tensor": [(x(3, 5), p(5))],
    "round.decimals": [(x(3, 5), {"decimals": places}) for places in (2, 0, -1)],
    **{f"{name}.default": [(m(3, 5),)] for name in ("asin", "acos", "atanh")},
    "remainder.Scalar": [(x(3, 5), 0.7)],
    "remainder.Tensor": [(x(3, 5), p(5))],
    "gelu.default": [(x(3, 5),), (x(3, 5), {"approximate": "tanh"})],
    "elu.default": [(x(3, 5),), (x(3, 5), 1.5, 1.2, 0.7)],
    "softplus.default": [(x(3, 5), 2.0, 1.0)],
    "leaky_relu.default": [(x(3, 5), 0.2)],
    "threshold_backward.default": [(x(3, 5), x(3, 5), 0), (x(3, 5), x(3, 5), 0.25)],
    "_prelu_kernel.default": [(x(2, 3, 4), w(1, 3, 1))],
    "glu.default": [(x(3, 6),), (x(4, 3), 0)],
    "where.self": [(b(3, 5), x(3, 5), x(5))],
    "where.ScalarOther": [(b(3, 5), x(3, 5), 2.0)],
    "where.ScalarSelf": [(b(3, 5), 2.0, x(3, 5))],
    "where.Scalar": [(b(3, 5), 2.0, 3.0)],
    "masked_fill.Scalar": [(x(3, 5), b(3, 5), -1.0)],
    "masked_fill.Tensor": [(x(3, 5), b(3, 5), x())],
    "clamp.default": [(x(3, 5), -0.5), (x(3, 5), None, 0.5), (i(9, 3, 5), 2, 5)],
    "clamp_min.default": [(x(3, 5), 0.1)],
    "clamp_max.default": [(x(3, 5), 0.1)],
    "hardtanh.default": [(x(3, 5),)],
    "clamp.Tensor": [(x(3, 5), w(5), None)],
    "clamp_min.Tensor": [(x(3, 5), x(5))],
    "clamp_max.Tensor": [(x(3, 5), x(5))],
    "to.dtype": [(b(3, 5), torch.float32), (x(3, 5), torch.int32)],
    "prims.convert_element_type.default": [(x(3, 5), torch.int64), (b(3, 5), torch.float32)],
    "dropout.default": [(x(3, 5), 0.5, False)],
    "copy.default": [(x(3, 5), x(3, 5)), (x(3, 5), w()), (x(3, 5), i(9, 5))],
    "pow.Tensor_Scalar": [*((p(3, 5), e) for e in (-1, 0, 0.5, 1, 2, 3, 2.3, -0.5)), (x(3, 5), 2)],
    "pow.Tensor_Tensor": [(p(3, 5), x(5))],
    "pow.Scalar": [(2.0, x(3, 5))],
    # Shapes
    "view.default": [(x(3, 4), [2, 6])],
    "_unsafe_view.default": [(x(3, 4), [12])],
    "reshape.default": [(x(3, 4), [2, -1])],
    "_reshape_alias.default": [(x(3, 4), [2, 6], [6, 1])],
    "unsqueeze.default": [(x(3, 4), 1)],
    "flatten.using_ints": [(x(2, 3, 4), 1)],
    "unflatten.int": [(x(2, 6), 1, [2, 3])],
    "squeeze.default": [(x(1, 3, 1),)],
    "squeeze.dim": [(x(1, 3, 1), 0)],
    "squeeze.dims": [(x(1, 3, 1), [0, 2])],
    "permute.default": [(x(2, 3, 4), [2, 0, -2])],
    "transpose.int": [(x(2, 3, 4), 0, -1)],
    "t.default": [(x(3, 4),)],
    "numpy_T.default": [(x(2, 3, 4),)],
    "movedim.int": [(x(2, 3, 4), 0, -1)],
    "expand.default": [(x(3, 1), [2, -1, 4])],
    "expand_as.default": [(x(3, 1), x(3, 4))],
    "broadcast_to.default": [(x(3, 1), [2, 3, 4])],
    "repeat.default": [(x(3, 2), [2, 1, 3])],
    "tile.default": [(x(3, 2), [2])],
    "repeat_interleave.self_int": [(x(3, 2), 2, 1)],
    "cat.default": [([x(2, 3), x(2, 4)], -1), ([x(2, 3), i(3, 2, 3)],), ([w(0), x(2, 3)],)],
    "concat.default": [([x(2, 3), x(1, 3)],)],
    "concatenate.default": [([x(2, 3), x(1, 3)],)],
    "stack.default": [([x(2, 3), x(2, 3)], 1)],
    "slice.Tensor": [(x(5, 9), 1, 2, 8, 3), (x(5, 9), 0, -2, 2**63 - 1)],
    "select.int": [(x(5, 3), 0, -1), (x(5), 0, 2)],
    "narrow.default": [(x(5, 3), 0, 1, 2)],
    "split_with_sizes.default": [(x(5, 4), [2, 3])],
    "split.Tensor": [(x(5, 4), 2)],
    "split.sizes": [(x(5, 4), [1, 4])],
    "unsafe_split.Tensor": [(x(5, 4), 2)],
    "chunk.default": [(x(5, 4), 3)],
    "unbind.int": [(x(3, 4), 1)],
    "flip.default": [(x(3, 4), [0, 1])],
    "roll.default": [(x(3, 4), [1, -2], [0, 1]), (x(3, 4), [5])],
    "constant_pad_nd.default": [(x(3, 4), [1, 2], 0.5), (x(3, 4), [1, -1, 0, 2])],
    **{f"{n}_pad1d.default": [(x(1, 2, 5), [1, 2])] for n in ("reflection", "replication")},
    **{f"{n}_pad2d.default": [(x(1, 2, 5, 4), [1, 2, 0, 3])] for n in ("reflection", "replication")},
    **{f"{n}_pad3d.default": [(x(1, 2, 3, 5, 4), [1, 2, 0, 3, 1, 1])] for n in ("reflection", "replication")},
    "pixel_shuffle.default": [(x(1, 8, 2, 3), 2)],
    "pixel_unshuffle.default": [(x(1, 2, 4, 6), 2)],
    "as_strided.default": [(x(2, 3), [3, 2], [2, 1]), (x(2, 3, 1, 1), [2, 3, 1, 1], [3, 1, 3, 3])],
    "channel_shuffle.default": [(x(1, 6, 2, 3), 3)],
    # Layers: input, weight, bias, stride, padding, dilation, transposed, output padding, groups
    "convolution.default": [
        (x(2, 3, 9, 8), w(4, 3, 3, 3), w(4), [2, 1], [1, 0], [1, 1], False, [0, 0], 1),
        (x(1, 4, 7, 7), w(4, 1, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 4),
        (x(1, 4, 7, 7), w(6, 2, 3, 3), None, [1, 1], [2, 2], [2, 2], False, [0, 0], 2),
        (x(2, 3, 11), w(4, 3, 3), w(4), [2], [1], [1], False, [0], 1),
        (x(1, 2, 5, 6, 7), w(3, 2, 2, 3, 3), w(3), [1, 1, 1], [0, 1, 1], [1, 1, 1], False, [0, 0, 0], 1),
        (x(1, 4, 5, 6), w(4, 3, 3, 2), w(3), [2, 2], [1, 0], [1, 1], True, [1, 0], 1),
        # of weights that are computed
        (x(2, 3, 9, 8), x(4, 3, 3, 2), x(4), [2, 1], [1, 0], [1, 2], False, [0, 0], 1),
        (x(2, 16, 5, 4), x(4, 16, 3, 3), w(4), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        (x(1, 16, 9), x(3, 16, 3), None, [2], [1], [1], False, [0], 1),
        (x(2, 3, 4, 9), x(4, 3, 2, 3), None, [2, 3], [0, 0], [1, 1], False, [0, 0], 1),
        (x(2, 4, 5, 6), x(6, 2, 3, 3), x(6), [2, 1], [1, 1], [1, 1], False, [0, 0], 2),
        (x(1, 5, 6, 5), x(5, 1, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 5),
    ],
    "convolution_backward.default": [
        # slope, data, weight, shape of the bias, then as for a convolution, and which gradients are asked for
        (x(2, 4, 5, 7), x(2, 3, 9, 8), x(4, 3, 3, 2), [4], [2, 1], [1, 0], [1, 1], False, [0, 0], 1, [True] * 3),
        (x(2, 4, 5, 4), x(2, 16, 5, 4), x(4, 16, 3, 3), [4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True] * 3),
        (x(2, 4, 3, 2), x(2, 16, 6, 4), x(4, 16, 1, 1), [4], [2, 2], [0, 0], [1, 1], False, [0, 0], 1, [True] * 3),
        (x(2, 4, 3, 2), x(2, 16, 3, 2), x(4, 16, 1, 1), [4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True] * 3),
        (x(1, 16, 4, 3), x(1, 16, 8, 4), x(16, 16, 3, 2), [16], [1, 1], [0, 0], [2, 1], False, [0, 0], 1, [True] * 3),
        (x(1, 3, 5), x(1, 16, 9), x(3, 16, 3), [3], [2], [1], [1], False, [0], 1, [True] * 3),
        (x(2, 4, 2, 3), x(2, 3, 4, 9), x(4, 3, 2, 3), [4], [2, 3], [0, 0], [1, 1], False, [0, 0], 1, [True] * 3),
        (x(2, 2, 9), x(2, 16, 5), x(2, 16, 1), [2], [1], [2], [1], False, [0], 1, [True] * 3),
        (x(2, 6, 3, 6), x(2, 4, 5, 6), x(6, 2, 3, 3), [6], [2, 1], [1, 1], [1, 1], False, [0, 0], 2, [True] * 3),
        (x(1, 5, 3, 3), x(1, 5, 6, 5), x(5, 1, 3, 3), [5], [2, 2], [1, 1], [1, 1], False, [0, 0], 5, [True] * 3),
    ],
    "linear.default": [(x(2, 3, 4), w(5, 4), w(5)), (x(3, 4), x(5, 4))],
    "mm.default": [(x(3, 4), w(4, 5)), (x(3, 4), x(4, 5))],
    "bmm.default": [(x(2, 3, 4), x(2, 4, 5))],
    "matmul.default": [(x(2, 3, 4), w(4, 5)), (x(2, 1, 3, 4), x(3, 4, 2)), (x(4), x(4, 2))],
    "mv.default": [(x(3, 4), x(4))],
    "dot.default": [(x(4), x(4))],
    "addmm.default": [(w(5), x(3, 4), w(4, 5)), (x(5), x(3, 4), x(4, 5), {"beta": 0.5, "alpha": 2.0})],
    "baddbmm.default": [(x(2, 3, 5), x(2, 3, 4), x(2, 4, 5)), (x(2, 3, 5), x(2, 3, 4), x(2, 4, 5), {"beta": 0})],
    "max_pool2d_with_indices.default": [(x(1, 3, 7, 8), [3, 2], [2, 2], [1, 0], [1, 1], True)],
    "max_pool3d_with_indices.default": [(x(1, 2, 5, 6, 7), [2, 2, 2], [2, 2, 2])],
    "max_pool2d_with_indices_backward.default": [
        (x(2, 3, 1, 1), x(2, 3, 2, 3), [2, 3], [2, 3], [0, 0], [1, 1], False, i(6, 2, 3, 1, 1)),
        (x(1, 3, 2, 2), x(1, 3, 2, 2), [3, 3], [1, 1], [1, 1], [1, 1], False, i(4, 1, 3, 2, 2)),
    ],
    "max_pool1d.default": [(x(1, 3, 9), [3], [2], [1])],
    "max_pool2d.default": [(x(1, 3, 9, 8), [3], [2], [1])],
    "max_pool3d.default": [(x(1, 2, 5, 6, 7), [2], [2])],
    "avg_pool1d.default": [(x(1, 3, 9), [3], [2], [1])],
    "avg_pool2d.default": [
        (x(1, 3, 9, 8), [3, 3], [2, 2], [1, 1], ceil, counted) for ceil in (False, True) for counted in (False, True)
    ],
    "avg_pool3d.default": [(x(1, 2, 5, 6, 7), [2], [2])],
    "avg_pool2d_backward.default": [
        (x(1, 3, 4, 4), x(1, 3, 8, 9), [2, 2], [2, 2], [0, 0], False, True, None),
        (x(1, 3, 5, 4), x(1, 3, 9, 8), [3, 3], [2, 2], [1, 1], False, True, None),
    ],
    "_adaptive_avg_pool2d.default": [(x(1, 3, 6, 8), [1, 1]), (x(1, 3, 6, 8), [3, 2]), (x(1, 3, 7, 5), [3, 2])],
    "_adaptive_avg_pool3d.default": [(x(1, 2, 4, 6, 8), [1, 1, 1])],
    "adaptive_avg_pool1d.default": [(x(1, 3, 8), [2]), (x(1, 3, 7), [3])],
    **{f"{name}.default": [(x(2, 3, 4), axis, False) for axis in (1, -1)] for name in ("_softmax", "_log_softmax")},
    **{f"{name}.int": [(x(2, 3, 4), axis) for axis in (1, -1)] for name in ("softmax", "log_softmax")},
    "_safe_softmax.default": [(x(2, 3, 4), -1), (TensorArgument((4, 3), "mask"), -1)],
    # Normalisation
    "_native_batch_norm_legit_no_training.default": [
        (x(2, 3, 4, 5), w(3), w(3), w(3), v(3), 0.1, 1e-5),
        (x(2, 3, 4), None, None, w(3), v(3), 0.1, 1e-3),
    ],
    "native_batch_norm.default": [(x(2, 3, 4, 5), w(3), w(3), w(3), v(3), False, 0.1, 1e-5)],
    "batch_norm.default": [(x(2, 3, 4, 5), w(3), w(3), w(3), v(3), False, 0.1, 1e-5, False)],
    "_native_batch_norm_legit.no_stats": [(x(n, 3, 4, 5), w(3), w(3), True, 0.1, 1e-5) for n in (1, 2)],
    "native_layer_norm.default": [(x(2, 3, 4), [4], w(4), w(4), 1e-5), (x(2, 3, 4), [3, 4], None, None, 1e-3)],
    "layer_norm.default": [(x(2, 3, 4), [4], w(4), w(4), 1e-5), (x(2, 3, 4), [4])],
    "native_group_norm.default": [(x(2, 6, 4), w(6), w(6), 2, 6, 4, 3, 1e-5)],
    "group_norm.default": [(x(2, 6, 4, 5), 3, w(6), w(6), 1e-5)],
    "rms_norm.default": [(x(2, 3, 4), [4], w(4), 1e-5)],
    "_fused_rms_norm.default": [(x(2, 3, 4), [4], w(4), 1e-5)],
    # Reductions
    **{f"{name}.default": [(x(2, 3, 4),)] for name in ("sum", "mean", "prod", "max", "min")},
    **{f"{name}.default": [(x(2, 3, 4), [0, -1], keep) for keep in (False, True)] for name in ("amax", "amin")},
    "sum.dim_IntList": [(x(2, 3, 4), [1]), (x(2, 3, 4, 5), [0, 2, 3]), (b(3, 4), [0], True)],
    "mean.dim": [(x(2, 3, 4, 5), [-1, -2]), (x(2, 3, 4), [1, 2], True), (x(2, 3, 4), None)],
    "prod.dim_int": [(x(2, 3, 4), 1)],
    **{f"{name}.default": [(b(3, 4),)] for name in ("any", "all")},
    **{f"{name}.dim": [(b(3, 4), 1, True)] for name in ("any", "all")},
    **{f"{name}.dims": [(b(3, 4, 2), [0, 2])] for name in ("any", "all")},
    "max.dim": [(x(3, 4), 1)],
    "min.dim": [(x(3, 4), 0, True)],
    "argmax.default": [(x(3, 4), 1), (x(3, 4), -1, True)],
    "argmin.default": [(x(3, 4), 0)],
    **{f"{n}.correction": [(x(3, 4), [1]), (x(3, 4), [0], {"correction": 0, "keepdim": True})] for n in ("var", "std")},
    **{f"{n}_mean.correction": [(x(3, 4), [1], {"correction": 0}), (x(2, 3, 4), [0, 2])] for n in ("var", "std")},
    "linalg_vector_norm.default": [(x(3, 4), order, [1], True) for order in (1, 2, float("inf"))],
    "logsumexp.default": [(x(3, 4), [1])],
    "cumsum.default": [(x(3, 4), 1), (b(3, 4), 0), (i(5, 2, 300), 1)],
    # Places
    "embedding.default": [(w(7, 4), i(7, 2, 3))],
    "index_select.default": [(x(5, 4), 0, i(5, 3)), (x(5, 4), 1, ci(4, 3))],
    "gather.default": [(x(3, 4), 1, i(4, 3, 2))],
    "index.Tensor": [
        (x(5, 4), [i(5, 3)]),
        (x(5, 4), [None, ci(4, 2, 3)]),
        (x(2, 5, 4), [None, ci(5, 3, 1), ci(4, 2)]),
        (x(2, 5, 4), [None, i(5, 3, 1), i(4, 2)]),
        (x(5, 4), [ci(5, 3), ci(4, 3)]),
    ],
    "_unsafe_index.Tensor": [(x(1, 2, 5, 4), [None, None, ci(5, 3, 1), ci(4, 6)])],
    "scatter.value": [(x(3, 4), 1, i(4, 3, 1), 2.5), (x(3, 4), -2, i(3, 1, 4), -1.0)],
    "full_like.default": [(x(3, 4), 2.5)],
    "new_full.default": [(x(3, 4), [2, 2], 2.5)],
    "fill.Scalar": [(x(3, 4), 1.5)],
    "zeros_like.default": [(x(3, 4),)],
    "ones_like.default": [(i(3, 3, 4),)],
    "new_zeros.default": [(x(3, 4), [2, 3])],
    "new_ones.default": [(x(3, 4), [2, 3])],
    "scalar_tensor.default": [(2.5,)],
    "tril.default": [(x(3, 4),), (b(3, 3), 1)],
    "triu.default": [(x(2, 3, 4), 1)],
    "select_scatter.default": [(x(3, 4), x(4), 0, 1)],
    "slice_scatter.default": [(x(5, 4), x(2, 4), 0, 1, 3), (x(5, 4), x(5, 2), 1, 2)],
    # Attention
    "scaled_dot_product_attention.default": [
        (x(2, 3, 5, 4), x(2, 3, 6, 4), x(2, 3, 6, 8)),
        (x(2, 3, 5, 4), x(2, 3, 6, 4), x(2, 3, 6, 4), b(2, 1, 5, 6)),
        (x(2, 4, 5, 4), x(2, 2, 5, 4), x(2, 2, 5, 4), None, 0.0, True, {"scale": 0.3, "enable_gqa": True}),
    ],
    "_scaled_dot_product_flash_attention_for_cpu.default": [
        (x(2, 3, 5, 4), x(2, 3, 5, 4), x(2, 3, 5, 4), 0.0, True),
        (x(2, 3, 5, 4), x(2, 3, 6, 4), x(2, 3, 6, 4), 0.0, False, {"attn_mask": TensorArgument((2, 1, 5, 6), "mask")}),
    ],
    # Recurrent layers
    "lstm.input": [
        (x(3, 2, 4), [x(1, 2, 5), w(1, 2, 5)], _layers(4, 4, 5, 1), True, 1, 0.0, False, False, False),
        (x(2, 3, 4), [w(4, 2, 5), x(4, 2, 5)], _layers(4, 4, 5, 2, 2, False), False, 2, 0.0, False, True, True),
    ],
    "gru.input": [
        (x(3, 2, 4), x(1, 2, 5), _layers(3, 4, 5, 1), True, 1, 0.0, False, False, False),
        (x(2, 3, 4), w(4, 2, 5), _layers(3, 4, 5, 2, 2), True, 2, 0.0, False, True, True),
    ],
    "rnn_tanh.input": [(x(3, 2, 4), x(2, 2, 5), _layers(1, 4, 5, 1, 2), True, 1, 0.0, False, True, False)],
    "rnn_relu.input": [(x(3, 2, 4), x(2, 2, 5), _layers(1, 4, 5, 2), True, 2, 0.0, False, False, False)],
    "mkldnn_rnn_layer.default": [
        (x(3, 2, 4), *_layers(4, 4, 5, 1), x(1, 2, 5), x(1, 2, 5), back, [], 2, 5, 1, True, False, False, False)
        for back in (False, True)
    ],
    # Resizing
    **{f"upsample_nearest{r}d.vec": [(x(1, 2, *[5, 4, 3][:r]), None, [1.6] * r)] for r in (1, 2, 3)},
    **{f"upsample_nearest{r}d.default": [(x(1, 2, *[5, 4, 3][:r]), [7, 8, 5][:r])] for r in (1, 2, 3)},
    **{f"_upsample_nearest_exact{r}d.vec": [(x(1, 2, *[5, 4, 3][:r]), None, [1.6] * r)] for r in (1, 2, 3)},
    **{f"_upsample_nearest_exact{r}d.default": [(x(1, 2, *[5, 4, 3][:r]), [7, 8, 5][:r])] for r in (1, 2, 3)},
    **{
        f"upsample_{name}.{kind}": [
            (x(1, 2, *[5, 4, 3][:r]), *((None, corners, [1.6] * r) if kind == "vec" else ([7, 3, 5][:r], corners)))
            for corners in (False, True)
        ]
        for name, r in (("linear1d", 1), ("bilinear2d", 2), ("trilinear3d", 3), ("bicubic2d", 2))
        for kind in ("vec", "default")
    },
    **{
        f"_upsample_{name}2d_aa.{kind}": [
            (x(1, 2, 9, 8), *((None, False, [0.5, 0.6]) if kind == "vec" else ([4, 3], False)))
        ]
        for name in ("bilinear", "bicubic")
        for kind in ("vec", "default")
    },
}
"""Overload → arguments by place; a last one that is a dictionary has those by name."""
