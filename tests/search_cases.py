"""Searches whose trials and records a refactoring must leave as they are, each by one of the callers of the tuner.

Trials are answered by a pool that makes a time up from their schedule, so that equal seeds give equal searches on any
machine. Records are compared without the times at which they were written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

SEARCHES = ("tune", "resume", "sizes", "operator", "network", "collect", "sweep", "torch")


def first_module(*names: str) -> Any:
    """Imports the first of several names that there is: other revisions have their modules elsewhere."""
    for name in names[:-1]:
        try:
            return import_module(name)
        except ModuleNotFoundError:
            continue
    return import_module(names[-1])


def pool_class() -> type:
    """Makes the class of pools that answer at once, a trial in twelve by a failure."""
    from measure.errors import ErrorClass
    from measure.outcome import Outcome
    from measure.pool import MeasurePool, Trial, TrialResult

    class ScriptedPool(MeasurePool):
        requests: ClassVar[list[str]] = []

        def __init__(self) -> None:
            self._ready: list[TrialResult] = []
            self._count = 0

        def submit(self, trials: Sequence[Trial]) -> None:
            for trial in trials:
                key = json.dumps([trial.workload_key, trial.trace_key])
                number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big")
                request = {**trial.to_json(), "best_seconds": None}
                self.requests.append(json.dumps(request, default=list, sort_keys=True))
                seconds = 1e-5 * (1 + number / 2**30)
                outcome = Outcome((seconds,) * 3, seconds, spread=0.0, max_error=0.0)
                if number % 12 == 0:
                    outcome = Outcome.from_error(ErrorClass.compile, "the twelfth")
                self._ready.append(TrialResult(trial, self._count, outcome))
                self._count += 1

        def results(self, timeout: float | None = None) -> list[TrialResult]:
            ready, self._ready = self._ready, []
            return ready

        def cancel(self) -> None:
            self._ready.clear()

        def close(self) -> None:
            self._ready.clear()

        @property
        def outstanding(self) -> int:
            return len(self._ready)

    return ScriptedPool


def search(name: str, threads: int, folder: Path, images: Callable[[], Any]) -> dict[str, str]:
    """Runs a search in a folder and returns digests of the trials asked for and of the records."""
    pools = first_module("autotune.tuner.pools", "autotune.tuning.pools")
    pool = pool_class()
    pools.make_pool = lambda measure: measure.pool if not isinstance(measure.pool, str) else pool()
    records = folder / "run" / "records.jsonl"
    records.parent.mkdir()
    {
        "tune": _tune,
        "resume": _resume,
        "sizes": _sizes,
        "operator": _operator,
        "network": _network,
        "collect": _collect,
        "sweep": _sweep,
        "torch": _torch,
    }[name](threads, records, pool, images)
    asked: list[str] = pool.requests  # type: ignore[attr-defined]
    digests = {"trials": _digest(asked, folder), "count": str(len(asked))}
    if records.exists() and name != "sizes":  # whose schedules are timed in this process
        digests["records"] = _digest(_timeless(records), folder)
    return digests


def _digest(lines: Sequence[str], folder: Path) -> str:
    """Digest of lines in which a temporary folder has no name of its own."""
    return hashlib.sha256("\n".join(lines).replace(str(folder), "FOLDER").encode()).hexdigest()


def _timeless(records: Path) -> list[str]:
    lines = []
    for line in records.read_text().splitlines():
        record = json.loads(line)
        for section in record.values():
            if isinstance(section, dict):
                section.pop("time", None)
        lines.append(json.dumps(record, sort_keys=True))
    return lines


def _measure(pool: type, threads: int) -> Any:
    from autotune.config import Measure

    return Measure(pool=pool(), threads=threads)


def _tune(threads: int, records: Path, pool: type, images: Any, trials: int = 40) -> None:
    import autotune
    from search_space.workloads import Workload

    workload = Workload.from_json({"operator": "matmul", "args": {"m": 96, "n": 64, "k": 80}})
    autotune.tune(workload, trials=trials, seed=3, records=records, measure=_measure(pool, threads))


def _resume(threads: int, records: Path, pool: type, images: Any) -> None:
    _tune(threads, records, pool, images, 20)
    _tune(threads, records, pool, images, 33)


def _sizes(threads: int, records: Path, pool: type, images: Any) -> None:
    from autotune import tune_for_sizes
    from search_space import te

    def layer(n: Any) -> list[te.Tensor]:
        x, w = te.placeholder((n, 48), name="x"), te.placeholder((48, 32), name="w", constant=True)
        k = te.reduce_axis((0, 48), "k")
        return [x, w, te.compute((n, 32), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="y")]

    options = {"trials": 12, "seed": 1, "carried": 6, "search_at": [3, 64], "records": records}
    tune_for_sizes(layer, [3, 8, 40, 64], measure=_measure(pool, threads), **options)


def _document(records: Path, threads: int, **keys: Any) -> dict[str, Any]:
    return {
        "name": "case",
        "output": str(records.parent),
        "seed": 5,
        "measure": {"threads": threads},
        "tracking": {"backend": "none"},
        **keys,
    }


def _run(document: Mapping[str, Any]) -> None:
    from autotune.config import check_config
    from autotune.run.run import run

    run(check_config(dict(document), "case"), "case")


def _operator(threads: int, records: Path, pool: type, images: Any) -> None:
    workload = {"operator": "conv2d", "height": 14, "width": 14, "in_channels": 16, "out_channels": 24, "kernel": 3}
    _run(_document(records, threads, workload=workload, trials=40))


def _network(threads: int, records: Path, pool: type, images: Any) -> None:
    import onnx

    file = records.parent / "images.onnx"
    onnx.save(images(), file)
    _run(_document(records, threads, model=str(file), trials=60))


def _collect(threads: int, records: Path, pool: type, images: Any) -> None:
    from typer.testing import CliRunner

    from autotune.cli.app import app

    operators = [{"operator": "matmul", "m": 24, "n": 64, "k": 48}, {"operator": "softmax", "rows": 8, "columns": 64}]
    sources = [{"workload": workload, "programs": 24} for workload in operators]
    config = records.parent.with_suffix(".yaml")
    config.write_text(json.dumps(_document(records, threads, collect={"sources": sources, "rounds": 0})))
    CliRunner().invoke(app, ["collect", str(config), "--quiet"], catch_exceptions=False)


def _sweep(threads: int, records: Path, pool: type, images: Any) -> None:
    from autotune.config import check_config
    from autotune.run.sweep import sweep

    workload = {"operator": "conv2d_blocked", "height": 14, "width": 14, "in_channels": 32, "out_channels": 32}
    document = _document(records, 1, target="vta", workload={**workload, "kernel": 3, "padding": 1}, trials=16)
    sweep(check_config(document, "case"), {"log_inp_buffer": [13, 14]}, records.parent)


def _torch(threads: int, records: Path, pool: type, images: Any) -> None:
    import torch

    from autotune.pytorch.backend import autotune_backend

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(24, 48), torch.nn.GELU(), torch.nn.Linear(48, 10))
    options = {"trials": 24, "threads": threads, "seed": 2}
    with torch.no_grad():
        torch.compile(module, backend=autotune_backend, options=options)(torch.randn(8, 24))
