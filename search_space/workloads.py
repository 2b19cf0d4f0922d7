"""Workloads: operators with their sizes, each a tensor expression and a NumPy reference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space import te

Array = NDArray[Any]


@dataclass(frozen=True)
class TensorSpec:
    name: str
    shape: tuple[int, ...]
    dtype: str
    constant: bool = False


@dataclass(frozen=True, eq=False)
class Workload:
    operator: str
    args: Mapping[str, Any]

    @property
    def key(self) -> str:
        return f"{self.operator}({','.join(f'{k}={v}' for k, v in self.args.items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workload) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def to_json(self) -> dict[str, Any]:
        return {"operator": self.operator, "args": json.loads(json.dumps(dict(self.args)))}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Workload:
        if data["operator"] not in OPERATORS:
            raise ValueError(f"`operator` must be one of {', '.join(OPERATORS)}, but got operator={data['operator']!r}")
        return globals()[data["operator"]](**data["args"])

    @property
    def algorithms(self) -> tuple[str, ...]:
        return ("direct",)

    def tensors(self, algorithm: str = "direct") -> list[te.Tensor]:
        return OPERATORS[self.operator][0](**self.args)

    def _ops(self) -> list[te.Tensor]:
        return self.tensors()

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(t.name, t.shape, t.dtype, t.op.constant) for t in self.tensors()[:-1])

    @property
    def output(self) -> TensorSpec:
        t = self.tensors()[-1]
        return TensorSpec(t.name, t.shape, t.dtype)

    @property
    def flops(self) -> int:
        return int(OPERATORS[self.operator][2](**self.args))

    @property
    def tolerance(self) -> tuple[float, float]:
        return (0, 0) if self.output.dtype.startswith("int") else (1e-4, 1e-4)

    def make_inputs(self, seed: int) -> list[Array]:
        rng = np.random.default_rng(seed)
        out = []
        for s in self.inputs:
            if s.dtype in ("uint8", "int8"):
                low, high = (0, 127) if s.dtype == "uint8" else (-127, 127)
                out.append(rng.integers(low, high, s.shape).astype(s.dtype))
            else:
                out.append(rng.uniform(-1, 1, s.shape).astype(s.dtype))
        return out

    def reference(self, *arrays: Array) -> Array:
        return OPERATORS[self.operator][1](self, *arrays)


def _pair(v: Any) -> list[int]:
    return [int(v), int(v)] if isinstance(v, int) else [int(x) for x in v]


def conv2d(batch: int = 1, height: int = 1, width: int = 1, in_channels: int = 1, out_channels: int = 1, kernel: Any = 3,
           stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1, bias: bool = False,
           activation: str | None = None, dtype: str = "float32") -> Workload:
    return Workload("conv2d", dict(batch=batch, height=height, width=width, in_channels=in_channels,
                                   out_channels=out_channels, kernel=_pair(kernel), stride=_pair(stride),
                                   padding=_pair(padding), dilation=_pair(dilation), groups=groups, bias=bias,
                                   activation=activation, dtype=dtype))


def _pad(x: te.Tensor, p: list[int], zero: Any) -> te.Tensor:
    if not any(p):
        return x
    n, h, w, c = x.shape
    return te.compute((n, h + 2 * p[0], w + 2 * p[1], c), lambda b, i, j, d: te.if_then_else(
        te.all(i >= p[0], i < h + p[0], j >= p[1], j < w + p[1]), x[b, i - p[0], j - p[1], d], zero), name="pad", tag="pad")


def _conv2d_te(batch, height, width, in_channels, out_channels, kernel, stride, padding, dilation, groups, bias, activation, dtype):  # type: ignore
    x = te.placeholder((batch, height, width, in_channels), "float32" if dtype == "float32" else "uint8", "data")
    wt = te.placeholder((*kernel, in_channels, out_channels), "float32" if dtype == "float32" else "int8", "weight", constant=True)
    p = _pad(x, padding, 0)
    oh = (height + 2 * padding[0] - kernel[0]) // stride[0] + 1
    ow = (width + 2 * padding[1] - kernel[1]) // stride[1] + 1
    rh, rw, rc = te.reduce_axis((0, kernel[0]), "rh"), te.reduce_axis((0, kernel[1]), "rw"), te.reduce_axis((0, in_channels), "rc")

    def body(n, h, w, k):  # type: ignore
        a, b = p[n, h * stride[0] + rh, w * stride[1] + rw, rc], wt[rh, rw, rc, k]
        if dtype != "float32":
            a, b = a.astype("int32"), b.astype("int32")
        return te.sum(a * b, axis=[rh, rw, rc])

    return [x, wt, te.compute((batch, oh, ow, out_channels), body, name="conv")]


def _conv2d_ref(self: Workload, x: Array, w: Array) -> Array:
    a = self.args
    ph, pw = a["padding"]
    sh, sw = a["stride"]
    n, oh, ow, k = self.output.shape
    xp = np.pad(x, ((0, 0), (ph, ph), (pw, pw), (0, 0)))
    kind = np.float64 if x.dtype != np.float32 else np.float32
    out = np.zeros((n * oh * ow, k), kind)
    for i in range(w.shape[0]):
        for j in range(w.shape[1]):
            out += xp[:, i:i + sh * oh:sh, j:j + sw * ow:sw][:, :oh, :ow].reshape(-1, x.shape[3]).astype(kind) @ w[i, j].astype(kind)
    return out.reshape(self.output.shape).astype(self.output.dtype)


def depthwise_conv2d(batch: int = 1, height: int = 1, width: int = 1, channels: int = 1, kernel: Any = 3, stride: Any = 1, padding: Any = 0) -> Workload:
    return Workload("depthwise_conv2d", dict(batch=batch, height=height, width=width, channels=channels,
                                             kernel=_pair(kernel), stride=_pair(stride), padding=_pair(padding)))


def _dw_te(batch, height, width, channels, kernel, stride, padding):  # type: ignore
    x = te.placeholder((batch, height, width, channels), name="data")
    wt = te.placeholder((*kernel, channels), name="weight", constant=True)
    p = _pad(x, padding, 0.0)
    oh = (height + 2 * padding[0] - kernel[0]) // stride[0] + 1
    ow = (width + 2 * padding[1] - kernel[1]) // stride[1] + 1
    rh, rw = te.reduce_axis((0, kernel[0]), "rh"), te.reduce_axis((0, kernel[1]), "rw")
    return [x, wt, te.compute((batch, oh, ow, channels), lambda n, h, w, c: te.sum(
        p[n, h * stride[0] + rh, w * stride[1] + rw, c] * wt[rh, rw, c], axis=[rh, rw]), name="conv")]


def _dw_ref(self: Workload, x: Array, w: Array) -> Array:
    (ph, pw), (sh, sw) = self.args["padding"], self.args["stride"]
    n, oh, ow, k = self.output.shape
    xp = np.pad(x, ((0, 0), (ph, ph), (pw, pw), (0, 0)))
    return sum(xp[:, i:i + sh * oh:sh, j:j + sw * ow:sw][:, :oh, :ow] * w[i, j] for i in range(w.shape[0]) for j in range(w.shape[1]))  # type: ignore


def matmul(m: int, n: int, k: int, dtype: str = "float32", constant_b: bool = True) -> Workload:
    return Workload("matmul", dict(m=m, n=n, k=k, dtype=dtype, constant_b=constant_b))


def _matmul_te(m, n, k, dtype, constant_b):  # type: ignore
    a = te.placeholder((m, k), dtype if dtype == "float32" else "uint8", "a")
    b = te.placeholder((k, n), dtype if dtype == "float32" else "int8", "b", constant=constant_b)
    r = te.reduce_axis((0, k), "r")
    f = (lambda i, j: te.sum(a[i, r] * b[r, j], axis=r)) if dtype == "float32" else (
        lambda i, j: te.sum(a[i, r].astype("int32") * b[r, j].astype("int32"), axis=r))
    return [a, b, te.compute((m, n), f, name="matmul")]


def _matmul_ref(self: Workload, a: Array, b: Array) -> Array:
    if a.dtype == np.float32:
        return a @ b
    return (a.astype("f8") @ b.astype("f8")).astype("i4")


def dense(batch: int, in_features: int, out_features: int, bias: bool = False, activation: str | None = None) -> Workload:
    return Workload("dense", dict(batch=batch, in_features=in_features, out_features=out_features, bias=bias, activation=activation))


def softmax(rows: int, columns: int) -> Workload:
    return Workload("softmax", dict(rows=rows, columns=columns))


def _softmax_te(rows, columns):  # type: ignore
    x = te.placeholder((rows, columns), name="data")
    r, q = te.reduce_axis((0, columns), "r"), te.reduce_axis((0, columns), "r")
    m = te.compute((rows,), lambda i: te.max(x[i, r], axis=r), name="maximum")
    e = te.compute((rows, columns), lambda i, j: te.exp(x[i, j] - m[i]), name="exponent")
    t = te.compute((rows,), lambda i: te.sum(e[i, q], axis=q), name="total")
    v = te.compute((rows,), lambda i: 1.0 / t[i], name="inverse")
    return [x, te.compute((rows, columns), lambda i, j: e[i, j] * v[i], name="softmax")]


def _softmax_ref(self: Workload, x: Array) -> Array:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)  # type: ignore


def layer_norm(rows: int, columns: int) -> Workload:
    return Workload("layer_norm", dict(rows=rows, columns=columns))


def _ln_te(rows, columns):  # type: ignore
    x = te.placeholder((rows, columns), name="data")
    g, b = te.placeholder((columns,), name="gamma", constant=True), te.placeholder((columns,), name="beta", constant=True)
    r, q = te.reduce_axis((0, columns), "r"), te.reduce_axis((0, columns), "r")
    s = te.compute((rows,), lambda i: te.sum(x[i, r], axis=r), name="sum")
    v = te.compute((rows,), lambda i: te.sum((x[i, q] - s[i] * (1 / columns)) * (x[i, q] - s[i] * (1 / columns)), axis=q), name="squares")
    inv = te.compute((rows,), lambda i: te.rsqrt(v[i] * (1 / columns) + 1e-5), name="inverse")
    return [x, g, b, te.compute((rows, columns), lambda i, j: (x[i, j] - s[i] * (1 / columns)) * inv[i] * g[j] + b[j], name="layer_norm")]


def _ln_ref(self: Workload, x: Array, g: Array, b: Array) -> Array:
    m = x.mean(1, keepdims=True, dtype="f8")
    v = ((x - m) ** 2).mean(1, keepdims=True)
    return ((x - m) / np.sqrt(v + 1e-5) * g + b).astype("f4")  # type: ignore


OPERATORS: dict[str, Any] = {
    "conv2d": (_conv2d_te, _conv2d_ref, lambda **a: 2 * a["batch"] * ((a["height"] + 2 * a["padding"][0] - a["kernel"][0]) // a["stride"][0] + 1) * ((a["width"] + 2 * a["padding"][1] - a["kernel"][1]) // a["stride"][1] + 1) * a["in_channels"] * a["out_channels"] * a["kernel"][0] * a["kernel"][1]),
    "depthwise_conv2d": (_dw_te, _dw_ref, lambda **a: 2 * a["batch"] * ((a["height"] + 2 * a["padding"][0] - a["kernel"][0]) // a["stride"][0] + 1) * ((a["width"] + 2 * a["padding"][1] - a["kernel"][1]) // a["stride"][1] + 1) * a["channels"] * a["kernel"][0] * a["kernel"][1]),
    "matmul": (_matmul_te, _matmul_ref, lambda **a: 2 * a["m"] * a["n"] * a["k"]),
    "dense": (lambda batch, in_features, out_features, **_: _matmul_te(batch, out_features, in_features, "float32", True), _matmul_ref, lambda **a: 2 * a["batch"] * a["in_features"] * a["out_features"]),
    "softmax": (_softmax_te, _softmax_ref, lambda **a: 5 * a["rows"] * a["columns"]),
    "layer_norm": (_ln_te, _ln_ref, lambda **a: 8 * a["rows"] * a["columns"]),
}
