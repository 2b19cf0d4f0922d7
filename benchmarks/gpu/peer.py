"""Peer on the GPU: workloads computed by PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.workloads import Workload

Call = Callable[[], Any]
CHOICES = 3
"""Number of times that cuDNN chooses the algorithms of a call."""
_CHOSE: list[ThreadPoolExecutor] = []
"""Threads that chose algorithms: their choices must outlive their graphs."""


def torch_calls(workload: Workload, arrays: Sequence[NDArray[Any]], device: str) -> dict[str, Call]:
    """Makes ways to compute a workload, by name; each returns a tensor in the workload's own layout.

    float32 products are exact ones: TF32 is off.

    Raises:
        ValueError: an operator that is not measured on GPUs.
    """
    import torch
    from torch.nn import functional

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    inputs = [torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in arrays]
    if workload.operator == "matmul" or _is_rounded_product(workload):
        return {"plain": lambda: inputs[0] @ inputs[1]}
    if workload.operator == "softmax":
        return {"plain": lambda: torch.softmax(inputs[0], -1)}
    if workload.operator == "layer_norm":
        epsilon, columns = float(workload.args["epsilon"]), (inputs[0].shape[-1],)
        return {"plain": lambda: functional.layer_norm(inputs[0], columns, inputs[1], inputs[2], epsilon)}
    if workload.operator == "reduce":
        return {"plain": lambda: inputs[0].sum(-1)}
    if workload.operator != "conv2d":
        raise ValueError(f"`workload` must be a product, a convolution or row-wise, but got {workload.key}")
    stride, padding = (_pair(workload.args[name]) for name in ("stride", "padding"))
    weight = inputs[1].permute(3, 2, 0, 1)
    calls: dict[str, Call] = {}
    for name, form in (("plain", torch.contiguous_format), ("channels_last", torch.channels_last)):
        data, kernel = (
            inputs[0].permute(0, 3, 1, 2).contiguous(memory_format=form),
            weight.contiguous(memory_format=form),
        )

        def call(data: Any = data, kernel: Any = kernel) -> Any:
            return functional.conv2d(data, kernel, None, stride, padding).permute(0, 2, 3, 1)

        calls[name] = call
    return calls


def settle(calls: Mapping[str, Call]) -> None:
    """Makes each call a few times with the device to itself: at the first ones algorithms are chosen by their time."""
    import torch

    for call in calls.values():
        for _ in range(4):
            call()
        torch.cuda.synchronize()


def record_graphs(call: Call, choices: int = CHOICES) -> list[Call]:
    """Records a call's work on the device as CUDA graphs, without Python; returns replays.

    cuDNN times every algorithm once, so its choice for a short one is random, and PyTorch caches it by thread. So each
    graph is recorded in a new thread, and the fastest is the peer.
    """
    return [_in_thread(lambda: _record_graph(call)) for _ in range(choices)]


def _in_thread(make: Callable[[], Call]) -> Call:
    """Runs a function in a new thread, which then waits for the process to end."""
    _CHOSE.append(ThreadPoolExecutor(1))
    return _CHOSE[-1].submit(make).result()


def _record_graph(call: Call) -> Call:
    import torch

    with torch.no_grad():  # a mode is a thread's, too
        settle({"": call})
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
            call()
    return graph.replay


def _is_rounded_product(workload: Workload) -> bool:
    """Tells whether a workload is a product whose output has the factors' dtype, as PyTorch's have."""
    anchor = workload.args.get("anchor") or {}
    same = len({spec.dtype for spec in (*workload.inputs, workload.output)}) == 1
    return anchor.get("operator") == "matmul" and len(workload.inputs) == 2 and same


def _pair(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else [int(v) for v in value]
