"""TVM MetaSchedule as a peer, in the environment of its own that `benchmarks.tvm` makes.

`prepare` tunes: weights are layout-free (re-laid out ahead of time at no cost), builders skip the slow
import of tensor intrinsics.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import te, topi
from tvm.s_tir import meta_schedule
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from benchmarks.peers.base import Array, Peer, PeerError, serve
from benchmarks.reached import trials_to
from search_space.workloads import Workload


class TvmPeer(Peer):
    """The best of the first `options["upto"]` schedules that MetaSchedule tries in `options["trials"]` trials.

    Its database is kept in `options["folder"]`: whoever finds it there reads it, and searches nothing.
    """

    name = "tvm"

    def prepare(
        self, workload: Workload, arrays: Sequence[Array], threads: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Tunes, or reads what was tuned, on LLVM's CPU `options["mcpu"]` from `options["seed"]`."""
        if workload.operator not in _DEFINITIONS:
            raise PeerError(f"`workload` must be one of {', '.join(_DEFINITIONS)}, but got {workload.key}")
        target = tvm.target.Target({"kind": "llvm", "mcpu": options["mcpu"], "num-cores": threads})
        tensors = _DEFINITIONS[workload.operator](workload)
        function = te.create_prim_func(tensors)
        trials, upto, folder = options["trials"], options["upto"], Path(options["folder"])
        said: dict[str, Any] = {"version": tvm.__version__}
        kept = [str(folder / f"database_{part}.json") for part in ("workload", "tuning_record")]
        if not Path(kept[1]).exists():
            start = time.perf_counter()
            with tempfile.TemporaryDirectory() as work:
                meta_schedule.tir_integration.tune_tir(
                    function,
                    target,
                    work,
                    trials,
                    num_trials_per_iter=min(64, trials),
                    num_tuning_cores=threads,
                    builder=meta_schedule.builder.LocalBuilder(max_workers=threads, f_build=build),
                    database=meta_schedule.database.JSONDatabase(*kept),
                    seed=options.get("seed", 0),
                )
            said["tuning_seconds"] = time.perf_counter() - start
        lines = Path(kept[1]).read_text().splitlines()  # in order of time, which the database itself is not
        said["records"] = len(lines)
        said["nearly_after"] = trials_to([_seconds_of(line) for line in lines])
        first = folder / f"first_{upto}.json"
        first.write_text("".join(f"{line}\n" for line in lines[:upto]))
        database = meta_schedule.database.JSONDatabase(kept[0], str(first))
        schedule = meta_schedule.tir_integration.compile_tir(database, function, target)
        if schedule is None:
            raise PeerError(f"MetaSchedule must find a schedule, but got none in {upto} trials of {workload.key}")
        module, device = build(schedule.mod, target), tvm.cpu(0)
        self._arguments = [tvm.runtime.tensor(array, device) for array in _as_laid_out(schedule.mod, arrays)]
        self._evaluate = lambda repeat: module.time_evaluator("main", device, number=1, repeat=repeat)(*self._arguments)
        return said

    def time(self, samples: int) -> NDArray[np.float64]:
        self._evaluate(3)
        return np.array(self._evaluate(samples).results)

    def output(self) -> Array:
        """The output as it is; weights were taken in the layout that tuning chose, so values differ."""
        return np.asarray(self._arguments[-1].numpy())


def _seconds_of(line: str) -> float:
    """Mean of the runs that a line of the database has; one that failed has none, or a huge one."""
    _, (_, runs, *_) = json.loads(line)
    return float(np.mean([float(value) for value in runs])) if runs else np.inf


def _as_laid_out(module: tvm.IRModule, arrays: Sequence[Array]) -> list[Array]:
    """Arguments in the shapes that tuning gave them: re-laid weights keep their values in any order."""
    (function,) = (function for _, function in _relaid(module).functions_items())
    shapes = [tuple(int(n) for n in parameter.shape) for parameter in function.params]
    given = [np.resize(array, shape) for array, shape in zip(arrays, shapes, strict=False)]
    return [*given, np.zeros(shapes[-1], np.float32)]


def _relaid(module: tvm.IRModule) -> tvm.IRModule:
    return RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)


def build(module: tvm.IRModule, target: tvm.target.Target, _params: object = None) -> tvm.runtime.Module:
    """MetaSchedule's own build, less the import of tensor intrinsics, tens of seconds a worker."""
    from tvm.driver import build as compile_module

    return compile_module(_relaid(module), target=target)


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


def _placeholders(workload: Workload) -> list[te.Tensor]:
    return [te.placeholder(spec.shape, name=spec.name) for spec in workload.inputs]


def _conv2d(workload: Workload) -> list[te.Tensor]:
    if len(workload.inputs) > 2 or workload.args.get("activation"):
        raise PeerError(f"`workload` must be a plain convolution, but got {workload.key}")
    data, weight = _placeholders(workload)
    stride, padding, dilation = (
        _pair(workload.args.get(n, d)) for n, d in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    groups = int(workload.args.get("groups", 1))
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO", "auto_scheduler_should_rewrite_layout": True}
    return [data, weight, topi.nn.conv(data, weight, stride, padding, dilation, groups, **layouts)]


def _depthwise(workload: Workload) -> list[te.Tensor]:
    data, weight = _placeholders(workload)
    (stride_h, stride_w), (pad_h, pad_w) = _pair(workload.args["stride"]), _pair(workload.args["padding"])
    padded = topi.nn.pad(data, (0, pad_h, pad_w, 0), (0, pad_h, pad_w, 0), name="padded")
    rows = te.reduce_axis((0, weight.shape[0]), name="rows")
    columns = te.reduce_axis((0, weight.shape[1]), name="columns")
    result = te.compute(
        workload.output.shape,
        lambda n, h, w, c: te.sum(
            padded[n, h * stride_h + rows, w * stride_w + columns, c] * weight[rows, columns, c],
            axis=[rows, columns],
        ),
        name="depthwise",
        attrs={"layout_free_placeholders": [weight]},
    )
    return [data, weight, result]


def _product(workload: Workload) -> list[te.Tensor]:
    if len(workload.inputs) > 2 or workload.args.get("activation"):
        raise PeerError(f"`workload` must be a plain product, but got {workload.key}")
    data, weight = _placeholders(workload)
    depth = te.reduce_axis((0, data.shape[1]), name="depth")
    free = {"layout_free_placeholders": [weight]} if workload.inputs[1].constant else {}
    result = te.compute(
        workload.output.shape,
        lambda i, j: te.sum(data[i, depth] * weight[depth, j], axis=depth),
        name="product",
        attrs=free,
    )
    return [data, weight, result]


def _softmax(workload: Workload) -> list[te.Tensor]:
    (data,) = _placeholders(workload)
    return [data, topi.nn.fast_softmax(data, axis=1)]  # by a polynomial, as ours: the plain one calls `expf` a value


def _layer_norm(workload: Workload) -> list[te.Tensor]:
    data, *affine = _placeholders(workload)
    if not affine:
        raise PeerError(f"`workload` must have a scale and a shift, but got {workload.key}")
    return [
        data,
        *affine,
        topi.nn.layer_norm(data, affine[0], affine[1], [1], float(workload.args.get("epsilon", 1e-5))),
    ]


_DEFINITIONS: dict[str, Callable[[Workload], list[te.Tensor]]] = {
    "conv2d": _conv2d,
    "depthwise_conv2d": _depthwise,
    "matmul": _product,
    "dense": _product,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
}

if __name__ == "__main__":
    os.environ.setdefault("TVM_NUM_THREADS", str(len(os.sched_getaffinity(0))))
    serve(TvmPeer())
