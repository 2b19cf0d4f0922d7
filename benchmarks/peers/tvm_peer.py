"""Peer TVM MetaSchedule, in an environment of its own that `benchmarks.tvm` makes.

`prepare` tunes: weights are layout-free (re-laid out ahead of time at no cost), builders skip the slow
import of tensor intrinsics.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import te
from tvm.s_tir import meta_schedule
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from benchmarks.peers.base import Array, Peer, PeerError, serve
from benchmarks.peers.tvm_definitions import make_definitions
from benchmarks.reached import trials_to
from search_space.workloads import Workload


class TvmPeer(Peer):
    """Best of the first `options["upto"]` schedules that MetaSchedule tries in `options["trials"]` trials.

    If two algorithms fit an operator, it searches as many trials of each, and the better one counts. Its databases are
    in `options["folder"]`: later processes read them there, and search nothing.
    """

    name = "tvm"

    def prepare(
        self, workload: Workload, arrays: Sequence[Array], threads: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Tunes for LLVM's CPU `options["mcpu"]` from `options["seed"]`, or reads the result of an earlier search.

        An expression of `benchmarks.order_rows` is named by `options["row"]` and `options["order"]`.

        Returns:
            Facts about the search of the faster algorithm alone.
        """
        target = tvm.target.Target({"kind": "llvm", "mcpu": options["mcpu"], "num-cores": threads})
        upto, folder = options["upto"], Path(options["folder"])
        by_algorithm = {}
        for algorithm, definition in make_definitions(workload, options).items():
            search = _Search(te.create_prim_func(definition(workload)), folder / algorithm)
            if not search.folder.exists():
                search.run(target, options["trials"], threads, options.get("seed", 0))
            by_algorithm[algorithm] = search
        algorithm = min(by_algorithm, key=lambda each: min(by_algorithm[each].seconds[:upto]))
        search = by_algorithm[algorithm]
        schedule = meta_schedule.tir_integration.compile_tir(search.first(upto), search.function, target)
        if schedule is None:
            raise PeerError(f"MetaSchedule must find a schedule, but got none in {upto} trials of {workload.key}")
        module, device = build(schedule.mod, target), tvm.cpu(0)
        self._arguments = [tvm.runtime.tensor(array, device) for array in _as_laid_out(schedule.mod, arrays)]
        self._evaluate = lambda repeat: module.time_evaluator("main", device, number=1, repeat=repeat)(*self._arguments)
        return {"version": tvm.__version__, "algorithm": algorithm, **search.summarise()}

    def time(self, samples: int) -> NDArray[np.float64]:
        self._evaluate(3)
        return np.array(self._evaluate(samples).results)

    def output(self) -> Array:
        """Returns the output; weights were read in the layout that tuning chose, so values differ."""
        return np.asarray(self._arguments[-1].numpy())


class _Search:
    """One of one algorithm, whose database is kept in `folder`, a line a trial in order of time."""

    def __init__(self, function: tvm.tirx.PrimFunc, folder: Path) -> None:
        self.function, self.folder = function, folder
        self._workloads, self._records = folder / "workload.json", folder / "records.json"

    def run(self, target: tvm.target.Target, trials: int, threads: int, seed: int) -> None:
        """Tries so many schedules."""
        self.folder.mkdir()
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as work:
            meta_schedule.tir_integration.tune_tir(
                self.function,
                target,
                work,
                trials,
                num_trials_per_iter=min(64, trials),
                num_tuning_cores=threads,
                builder=meta_schedule.builder.LocalBuilder(max_workers=threads, f_build=build),
                database=meta_schedule.database.JSONDatabase(str(self._workloads), str(self._records)),
                seed=seed,
            )
        (self.folder / "seconds.json").write_text(json.dumps(time.perf_counter() - start))

    @property
    def seconds(self) -> list[float]:
        """Seconds of each trial in the search's own runs, in order; the database itself would sort them."""
        return [_read_seconds(line) for line in self._records.read_text().splitlines()]

    def first(self, trials: int) -> meta_schedule.database.Database:
        """Makes the database as it was after `trials` trials."""
        file = self.folder / f"first_{trials}.json"
        file.write_text("".join(f"{line}\n" for line in self._records.read_text().splitlines()[:trials]))
        return meta_schedule.database.JSONDatabase(str(self._workloads), str(file))

    def summarise(self) -> dict[str, Any]:
        """Summarises the search: records, trials and seconds."""
        seconds, took = self.seconds, json.loads((self.folder / "seconds.json").read_text())
        return {"records": len(seconds), "nearly_after": trials_to(seconds), "tuning_seconds": took}


def _read_seconds(line: str) -> float:
    """Averages the runs in a line of the database; a failed one has none, or a huge one."""
    _, (_, runs, *_) = json.loads(line)
    return float(np.mean([float(value) for value in runs])) if runs else np.inf


def _as_laid_out(module: tvm.IRModule, arrays: Sequence[Array]) -> list[Array]:
    """Returns arguments in the shapes that tuning gave them: re-laid weights keep their values in any order."""
    (function,) = (function for _, function in _relaid(module).functions_items())
    shapes = [tuple(int(n) for n in parameter.shape) for parameter in function.params]
    given = [np.resize(array, shape) for array, shape in zip(arrays, shapes, strict=False)]
    return [*given, np.zeros(shapes[-1], np.float32)]


def _relaid(module: tvm.IRModule) -> tvm.IRModule:
    return RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)


def build(module: tvm.IRModule, target: tvm.target.Target, _params: object = None) -> tvm.runtime.Module:
    """Builds a module like MetaSchedule, less the import of tensor intrinsics, which takes tens of seconds a worker."""
    from tvm.driver import build as compile_module

    return compile_module(_relaid(module), target=target)


if __name__ == "__main__":
    os.environ.setdefault("TVM_NUM_THREADS", str(len(os.sched_getaffinity(0))))
    serve(TvmPeer())
