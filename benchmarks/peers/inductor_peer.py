"""PyTorch's compiler as a peer: weights frozen, as it is by default and with all that it tunes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from benchmarks.peers.base import Array, Peer, PeerError, serve
from benchmarks.peers.calls import measure_seconds, medians
from benchmarks.peers.gradient_calls import GradientCall, check_gradient, list_calls
from search_space.workloads import Workload

MODES: Mapping[str, dict[str, Any]] = {"default": {}, "max-autotune": {"mode": "max-autotune-no-cudagraphs"}}
"""Name → arguments of `torch.compile`."""


class InductorPeer(Peer):
    """A compiled module of one layer; the cost of calling a compiled module that computes nothing is subtracted."""

    name = "inductor"

    def prepare(
        self, workload: Workload, arrays: Sequence[Array], threads: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Compiles the layer in every mode; keeps the fastest, or the one that `options["variant"]` names."""
        import torch._inductor.config as config

        known = workload.operator in _MODULES and workload.dtypes == {"float32"}
        if not known and "gradient" not in options:
            raise PeerError(f"`workload` must be one of {', '.join(_MODULES)} in float32, but got {workload.key}")
        torch.set_num_threads(threads)
        config.freezing = True
        tensors = [torch.from_numpy(array) for array in arrays]
        calls: dict[str, Callable[[], torch.Tensor]] = {}
        with torch.no_grad():
            for mode, arguments in MODES.items():
                if options.get("variant") not in (None, mode):
                    continue
                if "gradient" in options:
                    calls |= _compile_gradient(list_calls(options["gradient"], tensors), mode)
                else:
                    calls[mode] = _compile_module(*_MODULES[workload.operator](workload, tensors), arguments)
            seconds = medians(calls)
        best = min(seconds, key=seconds.__getitem__)
        self._call, self._image = calls[best], "conv" in workload.operator
        check_gradient(self._call, workload, arrays)
        nothing = _compile_module(nn.ReLU(), [torch.ones(1)], {})
        self._overhead = float(np.median(measure_seconds(nothing, 500)))
        return {"variant": best, "variants": seconds, "overhead": self._overhead, "version": torch.__version__}

    def time(self, samples: int) -> NDArray[np.float64]:
        return measure_seconds(self._call, samples, self._overhead)

    def output(self) -> Array:
        if isinstance(self._call, GradientCall):
            return self._call.output()
        result = self._call()
        result = result.permute(0, 2, 3, 1) if self._image else result
        return np.ascontiguousarray(result.numpy())


def _compile_module(
    module: nn.Module, inputs: Sequence[torch.Tensor], arguments: Mapping[str, Any]
) -> Callable[[], torch.Tensor]:
    """Compiles a module, runs it once, and returns its call."""
    torch._dynamo.reset()
    run = torch.compile(module.eval(), **arguments)

    def call() -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = run(*inputs)
            return found

    call()
    return call


class _Function(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


def _compile_gradient(calls: Mapping[str, GradientCall], mode: str) -> dict[str, Callable[[], torch.Tensor]]:
    """Compiles each way to compute a gradient in one mode."""
    compiled: dict[str, Callable[[], torch.Tensor]] = {}
    for name, call in calls.items():
        run = _compile_module(_Function(call.compute), call.inputs, MODES[mode])
        compiled[f"{mode} {name}"] = GradientCall(_ignore_arguments(run), call.inputs, call.arrange)
    return compiled


def _ignore_arguments(run: Callable[[], torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda *_: run()


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


def _parameter(tensor: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(tensor.contiguous(), requires_grad=False)


def _conv(workload: Workload, arrays: Sequence[torch.Tensor]) -> tuple[nn.Module, list[torch.Tensor]]:
    depthwise = workload.operator == "depthwise_conv2d"
    groups = int(workload.args["channels"] if depthwise else workload.args.get("groups", 1))
    stride, padding, dilation = (
        _pair(workload.args.get(name, default)) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    weight = arrays[1].permute(2, 0, 1)[:, None] if depthwise else arrays[1].permute(3, 2, 0, 1)
    outputs, inputs, *kernel = weight.shape
    layer = nn.Conv2d(
        inputs * groups, outputs, kernel, stride, padding, dilation, groups, bias=len(arrays) > 2, device="meta"
    )
    layer.weight = _parameter(weight)
    if len(arrays) > 2:
        layer.bias = _parameter(arrays[2])
    return _append_activation(workload, layer), [arrays[0].permute(0, 3, 1, 2).contiguous()]


def _conv_transpose(workload: Workload, arrays: Sequence[torch.Tensor]) -> tuple[nn.Module, list[torch.Tensor]]:
    stride, padding, more = (_pair(workload.args[name]) for name in ("stride", "padding", "output_padding"))
    weight = arrays[1].permute(2, 3, 0, 1)
    inputs, outputs, *kernel = weight.shape
    layer = nn.ConvTranspose2d(inputs, outputs, kernel, stride, padding, more, bias=len(arrays) > 2, device="meta")
    layer.weight = _parameter(weight)
    if len(arrays) > 2:
        layer.bias = _parameter(arrays[2])
    return _append_activation(workload, layer), [arrays[0].permute(0, 3, 1, 2).contiguous()]


def _product(workload: Workload, arrays: Sequence[torch.Tensor]) -> tuple[nn.Module, list[torch.Tensor]]:
    if not workload.inputs[1].constant:
        return _Product(), list(arrays)
    layer = nn.Linear(*arrays[1].shape, bias=len(arrays) > 2, device="meta")
    layer.weight = _parameter(arrays[1].t())
    if len(arrays) > 2:
        layer.bias = _parameter(arrays[2])
    return _append_activation(workload, layer), [arrays[0]]


class _Product(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


class _LayerNorm(nn.Module):
    def __init__(self, scale: torch.Tensor | None, bias: torch.Tensor | None, epsilon: float) -> None:
        super().__init__()
        self.scale = None if scale is None else _parameter(scale)
        self.bias, self.epsilon = None if bias is None else _parameter(bias), epsilon

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(data, data.shape[-1:], self.scale, self.bias, self.epsilon)


def _softmax(workload: Workload, arrays: Sequence[torch.Tensor]) -> tuple[nn.Module, list[torch.Tensor]]:
    return nn.Softmax(-1), [arrays[0]]


def _layer_norm(workload: Workload, arrays: Sequence[torch.Tensor]) -> tuple[nn.Module, list[torch.Tensor]]:
    scale, bias = [*arrays[1:], None, None][:2]
    return _LayerNorm(scale, bias, float(workload.args.get("epsilon", 1e-5))), [arrays[0]]


def _append_activation(workload: Workload, module: nn.Module) -> nn.Module:
    """Appends the workload's activation to a module."""
    if workload.args.get("activation") is None:
        return module
    return nn.Sequential(
        module, {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh}[workload.args["activation"]]()
    )


_MODULES: dict[str, Callable[[Workload, Sequence[torch.Tensor]], tuple[nn.Module, list[torch.Tensor]]]] = {
    "conv2d": _conv,
    "depthwise_conv2d": _conv,
    "conv2d_transpose": _conv_transpose,
    "matmul": _product,
    "dense": _product,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
}

if __name__ == "__main__":
    serve(InductorPeer())
