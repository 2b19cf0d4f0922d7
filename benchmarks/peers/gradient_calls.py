"""Gradients as calls of PyTorch's own operators, by the kinds of `benchmarks.gradients`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.gradients import WINDOW
from benchmarks.peers.base import Array
from search_space.workloads import Workload

ATEN = torch.ops.aten
LAYOUTS = {"plain": torch.contiguous_format, "channels_last": torch.channels_last}
"""Name → order of the images' dimensions in memory."""


@dataclass(frozen=True)
class GradientCall:
    """A gradient that PyTorch computes.

    Attributes:
        compute: function of the inputs that computes the gradient.
        inputs: its arguments.
        arrange: function that puts the gradient into the order of dimensions of our kernels.
    """

    compute: Callable[..., torch.Tensor]
    inputs: Sequence[torch.Tensor]
    arrange: Callable[[torch.Tensor], torch.Tensor]

    def __call__(self) -> torch.Tensor:
        return self.compute(*self.inputs)

    def output(self) -> Array:
        """Computes the gradient as an array of our kernels' order."""
        return np.ascontiguousarray(self.arrange(self.compute(*self.inputs)).numpy())


def list_calls(gradient: Mapping[str, Any], arrays: Sequence[torch.Tensor]) -> dict[str, GradientCall]:
    """Lists the ways in which PyTorch computes a gradient, by name.

    Args:
        gradient: `kind` and `args`, as in `benchmarks.gradients`.
        arrays: inputs of the gradient's workload.
    """
    return _CALLS[gradient["kind"]](gradient["args"], arrays)


def _operator(args: Mapping[str, Any], arrays: Sequence[torch.Tensor]) -> dict[str, GradientCall]:
    forward = Workload.from_json(args["forward"])
    if forward.operator == "dense":
        return _dense(args["of"], arrays)
    names = [tensor.name for tensor in forward.inputs]
    values = {name: torch.empty(spec.shape) for name, spec in zip(names, forward.inputs, strict=True)}
    values["seed"] = arrays[-1]
    (other,) = [name for name in names if name != args["of"]]
    values[other] = arrays[0]
    depthwise, transposed = forward.operator == "depthwise_conv2d", forward.operator == "conv2d_transpose"
    # Channels that are summed over lie behind those of a transposed convolution's output.
    order = (2, 3, 0, 1) if transposed else (3, 2, 0, 1)
    back = (2, 3, 0, 1) if transposed else (2, 3, 1, 0)
    groups = forward.args["channels"] if depthwise else forward.args.get("groups", 1)
    stride, padding = list(forward.args["stride"]), list(forward.args["padding"])
    weighted = args["of"] == "weight"
    mask = [not weighted, weighted, False]

    def compute(seed: torch.Tensor, data: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        gradient: torch.Tensor = ATEN.convolution_backward(
            seed, data, weight, None, stride, padding, [1, 1], transposed, [0, 0], groups, mask
        )[int(weighted)]
        return gradient

    def arrange(gradient: torch.Tensor) -> torch.Tensor:
        if not weighted:
            return gradient.permute(0, 2, 3, 1)
        return gradient[:, 0].permute(1, 2, 0) if depthwise else gradient.permute(back)

    filters = values["weight"].permute(2, 0, 1)[:, None] if depthwise else values["weight"].permute(order)
    images = [values[name].permute(0, 3, 1, 2) for name in ("seed", "data")]
    return {
        name: GradientCall(compute, [_lay_out(x, layout) for x in (*images, filters)], arrange)
        for name, layout in LAYOUTS.items()
    }


def _lay_out(x: torch.Tensor, layout: torch.memory_format) -> torch.Tensor:
    """Copies images or filters into an order of dimensions."""
    return x.clone(memory_format=torch.contiguous_format).contiguous(memory_format=layout)


def _dense(of: str, arrays: Sequence[torch.Tensor]) -> dict[str, GradientCall]:
    other, seed = arrays

    def same(gradient: torch.Tensor) -> torch.Tensor:
        return gradient

    def turn(gradient: torch.Tensor) -> torch.Tensor:
        return gradient.t()

    if of == "data":  # weights are stored as they are, and as `torch.nn.Linear` stores them
        plain = GradientCall(lambda w, s: s @ w.t(), [other, seed], same)
        return {"plain": plain, "linear": GradientCall(lambda w, s: s @ w, [other.t().contiguous(), seed], same)}
    plain = GradientCall(lambda x, s: x.t() @ s, [other, seed], same)
    return {"plain": plain, "linear": GradientCall(lambda x, s: s.t() @ x, [other, seed], turn)}


def _softmax(args: Mapping[str, Any], arrays: Sequence[torch.Tensor]) -> dict[str, GradientCall]:
    def compute(value: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
        gradient: torch.Tensor = ATEN._softmax_backward_data(seed, value, -1, torch.float32)
        return gradient

    return {"plain": GradientCall(compute, arrays, lambda gradient: gradient)}


def _layer_norm(by_scale: bool) -> Callable[[Mapping[str, Any], Sequence[torch.Tensor]], dict[str, GradientCall]]:
    """Returns the calls of layer normalisation's gradient by its data or by its scale."""
    mask = [not by_scale, by_scale, False]

    def list_ways(args: Mapping[str, Any], arrays: Sequence[torch.Tensor]) -> dict[str, GradientCall]:
        x, seed, mean, scale, *gamma = arrays
        weight = gamma[0] if gamma else torch.ones(x.shape[-1])

        def compute(seed: torch.Tensor, x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
            mean, scale, weight = others
            gradient: torch.Tensor = ATEN.native_layer_norm_backward(
                seed, x, list(weight.shape), mean, scale, weight, None, mask
            )[int(by_scale)]
            return gradient

        inputs = [seed, x, mean[:, None], scale[:, None], weight]
        return {"plain": GradientCall(compute, inputs, lambda gradient: gradient)}

    return list_ways


def _batch_norm(args: Mapping[str, Any], arrays: Sequence[torch.Tensor]) -> dict[str, GradientCall]:
    x, seed, mean, scale, gamma = arrays

    def compute(seed: torch.Tensor, x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        mean, scale, gamma = others
        gradient: torch.Tensor = ATEN.native_batch_norm_backward(
            seed, x, gamma, None, None, mean, scale, True, 0.0, [True, False, False]
        )[0]
        return gradient

    calls = {}
    for name, layout in LAYOUTS.items():
        images = [_lay_out(image.permute(0, 3, 1, 2), layout) for image in (seed, x)]
        calls[name] = GradientCall(
            compute, [*images, mean, scale, gamma], lambda gradient: gradient.permute(0, 2, 3, 1)
        )
    return calls


def _max_pool(from_data: bool) -> Callable[[Mapping[str, Any], Sequence[torch.Tensor]], dict[str, GradientCall]]:
    """Returns the calls of max pooling's gradient; PyTorch always computes it from indices."""
    window = [list(WINDOW[name]) for name in ("kernel", "stride", "padding", "dilation")]

    def list_ways(args: Mapping[str, Any], arrays: Sequence[torch.Tensor]) -> dict[str, GradientCall]:
        def compute(seed: torch.Tensor, data: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
            gradient: torch.Tensor = ATEN.max_pool2d_with_indices_backward(seed, data, *window, False, indices)
            return gradient

        def arrange(gradient: torch.Tensor) -> torch.Tensor:
            gradient = gradient.permute(0, 2, 3, 1)
            if from_data:
                return gradient
            n, height, width, c = gradient.shape
            return gradient.reshape(n, height // window[1][0], window[1][0], width // window[1][1], window[1][1], c)

        batch, size, channels = (args[name] for name in ("batch", "size", "channels"))
        data = arrays[0].permute(0, 3, 1, 2) if from_data else torch.empty(batch, channels, size, size)
        indices = ATEN.max_pool2d_with_indices(data, *window)[1] if from_data else arrays[1].permute(0, 3, 1, 2).long()
        seed = (arrays[2] if from_data else arrays[0]).permute(0, 3, 1, 2)
        return {
            name: GradientCall(compute, [_lay_out(x, layout) for x in (seed, data, indices)], arrange)
            for name, layout in LAYOUTS.items()
        }

    return list_ways


_CALLS: Mapping[str, Callable[[Mapping[str, Any], Sequence[torch.Tensor]], dict[str, GradientCall]]] = {
    "operator": _operator,
    "softmax": _softmax,
    "layer_norm_data": _layer_norm(by_scale=False),
    "layer_norm_scale": _layer_norm(by_scale=True),
    "batch_norm": _batch_norm,
    "max_pool_indices": _max_pool(from_data=False),
    "max_pool_data": _max_pool(from_data=True),
}
"""Kind of a gradient → the function that lists its calls."""


def check_gradient(call: object, workload: Workload, arrays: Sequence[Array]) -> None:
    """Compares a call's gradient with the workload's reference; calls of other operators have tests.

    Raises:
        AssertionError: the gradient is not that of the workload.
    """
    if isinstance(call, GradientCall):
        rtol, atol = workload.tolerance
        np.testing.assert_allclose(call.output(), workload.reference(*arrays), rtol=10 * rtol, atol=10 * atol)
