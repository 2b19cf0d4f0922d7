"""Peer PyTorch (oneDNN, MKL): the best of plain, channels-last and prepacked weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from benchmarks.peers.base import Array, Peer, PeerError, serve
from benchmarks.peers.calls import measure_seconds, medians
from benchmarks.peers.gradient_calls import GradientCall, check_gradient, list_calls
from search_space.workloads import Workload

Call = Callable[[], torch.Tensor]


class TorchPeer(Peer):
    """Eager PyTorch in inference mode; the cost of calling a trivial operator is subtracted."""

    name = "torch"

    def prepare(
        self, workload: Workload, arrays: Sequence[Array], threads: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Makes every variant of the operator; keeps the fastest, or the one that `options["variant"]` names."""
        is_listed = workload.operator in _VARIANTS and workload.dtypes == {"float32"}
        if "gradient" not in options and not is_listed:  # before PyTorch refuses to convert an array
            raise PeerError(f"`workload` must be one of {', '.join(_VARIANTS)} in float32, but got {workload.key}")
        torch.set_num_threads(threads)
        torch.inference_mode(True).__enter__()
        tensors = [torch.from_numpy(array) for array in arrays]
        calls: Mapping[str, Call] = (
            list_calls(options["gradient"], tensors)
            if "gradient" in options
            else _VARIANTS[workload.operator](workload, tensors)
        )
        if options.get("variant"):
            calls = {options["variant"]: calls[options["variant"]]}
        seconds = medians(calls)
        best = min(seconds, key=seconds.__getitem__)
        self._call, self._image = calls[best], "conv" in workload.operator
        check_gradient(self._call, workload, arrays)
        one = torch.ones(1)
        self._overhead = float(np.median(measure_seconds(lambda: torch.relu(one), 500)))
        return {"variant": best, "variants": seconds, "overhead": self._overhead, "version": torch.__version__}

    def time(self, samples: int) -> NDArray[np.float64]:
        return measure_seconds(self._call, samples, self._overhead)

    def output(self) -> Array:
        if isinstance(self._call, GradientCall):
            return self._call.output()
        result = self._call()
        result = result.to_dense() if result.is_mkldnn else result
        result = result.permute(0, 2, 3, 1) if self._image else result
        return np.ascontiguousarray(result.numpy())


def _pair(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else [int(v) for v in value]


def _append_activation(workload: Workload, call: Call) -> Call:
    activation = workload.args.get("activation")
    if activation is None:
        return call
    function = getattr(torch, activation)
    return lambda: function(call())


def _conv(workload: Workload, arrays: Sequence[torch.Tensor]) -> dict[str, Call]:
    depthwise = workload.operator == "depthwise_conv2d"
    groups = int(workload.args["channels"] if depthwise else workload.args.get("groups", 1))
    stride, padding, dilation = (
        _pair(workload.args.get(name, default)) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    weight = arrays[1].permute(2, 0, 1)[:, None] if depthwise else arrays[1].permute(3, 2, 0, 1)
    plain, weight = arrays[0].permute(0, 3, 1, 2).contiguous(), weight.contiguous()
    last, weight_last = (
        plain.contiguous(memory_format=torch.channels_last),
        weight.contiguous(memory_format=torch.channels_last),
    )
    bias = arrays[2] if len(arrays) > 2 else None
    reorder: Any = torch._C._nn.mkldnn_reorder_conv2d_weight  # its stub lacks the later arguments
    packed = reorder(weight.to_mkldnn(), padding, stride, dilation, groups, list(plain.shape))
    opaque, opaque_bias = plain.to_mkldnn(), None if bias is None else bias.to_mkldnn()

    def make_prepacked_call(data: torch.Tensor) -> Call:
        return lambda: torch.ops.mkldnn._convolution_pointwise(
            data, packed, bias, padding, stride, dilation, groups, "none", [], ""
        )

    calls: dict[str, Call] = {
        "plain": lambda: functional.conv2d(plain, weight, bias, stride, padding, dilation, groups),
        "channels_last": lambda: functional.conv2d(last, weight_last, bias, stride, padding, dilation, groups),
        "prepacked": make_prepacked_call(plain),
        "prepacked_channels_last": make_prepacked_call(last),
        "mkldnn": lambda: torch.mkldnn_convolution(opaque, packed, opaque_bias, padding, stride, dilation, groups),
    }
    return {name: _append_activation(workload, call) for name, call in calls.items()}


def _conv_transpose(workload: Workload, arrays: Sequence[torch.Tensor]) -> dict[str, Call]:
    stride, padding, more = (_pair(workload.args[name]) for name in ("stride", "padding", "output_padding"))
    plain, weight = arrays[0].permute(0, 3, 1, 2).contiguous(), arrays[1].permute(2, 3, 0, 1).contiguous()
    last, weight_last = (each.contiguous(memory_format=torch.channels_last) for each in (plain, weight))
    bias, once = arrays[2] if len(arrays) > 2 else None, [1, 1]
    size = list(plain.shape)
    reorder = torch.ops.mkldnn._reorder_convolution_transpose_weight
    packed = reorder(weight, padding, more, stride, once, 1, size)

    def make_prepacked_call(data: torch.Tensor) -> Call:
        return lambda: torch.ops.mkldnn._convolution_transpose_pointwise(
            data, packed, bias, padding, more, stride, once, 1, "none", [], ""
        )

    calls: dict[str, Call] = {
        "plain": lambda: functional.conv_transpose2d(plain, weight, bias, stride, padding, more),
        "channels_last": lambda: functional.conv_transpose2d(last, weight_last, bias, stride, padding, more),
        "prepacked": make_prepacked_call(plain),
        "prepacked_channels_last": make_prepacked_call(last),
    }
    return {name: _append_activation(workload, call) for name, call in calls.items()}


def _product(workload: Workload, arrays: Sequence[torch.Tensor]) -> dict[str, Call]:
    data, weight = arrays[:2]
    bias = arrays[2] if len(arrays) > 2 else None
    by_rows = weight.t().contiguous()
    calls: dict[str, Call] = {
        "plain": (lambda: data @ weight) if bias is None else (lambda: torch.addmm(bias, data, weight)),
        "linear": lambda: functional.linear(data, by_rows, bias),
    }
    if workload.inputs[1].constant:
        rows = data.shape[0]
        packed = torch.ops.mkldnn._reorder_linear_weight(by_rows, rows)
        calls["prepacked"] = lambda: torch.ops.mkldnn._linear_pointwise(data, packed, bias, "none", [], "")
        if torch._C.has_mkl:
            mkl_packed = torch.ops.mkl._mkl_reorder_linear_weight(by_rows, rows)
            calls["prepacked_mkl"] = lambda: torch.ops.mkl._mkl_linear(data, mkl_packed, by_rows, bias, rows)
    return {name: _append_activation(workload, call) for name, call in calls.items()}


def _softmax(workload: Workload, arrays: Sequence[torch.Tensor]) -> dict[str, Call]:
    return {"plain": lambda: torch.softmax(arrays[0], -1)}


def _layer_norm(workload: Workload, arrays: Sequence[torch.Tensor]) -> dict[str, Call]:
    scale, bias = [*arrays[1:], None, None][:2]
    size, epsilon = arrays[0].shape[-1:], float(workload.args.get("epsilon", 1e-5))
    return {"plain": lambda: functional.layer_norm(arrays[0], size, scale, bias, epsilon)}


_VARIANTS: dict[str, Callable[[Workload, Sequence[torch.Tensor]], dict[str, Call]]] = {
    "conv2d": _conv,
    "depthwise_conv2d": _conv,
    "conv2d_transpose": _conv_transpose,
    "matmul": _product,
    "dense": _product,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
}

if __name__ == "__main__":
    serve(TorchPeer())
