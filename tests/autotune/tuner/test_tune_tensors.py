"""`autotune.tune` on tensor expressions, measured by real workers: the kernel, the records, and a replay from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autotune
from measure.database import Database
from measure.local import LocalPool
from measure.replay import ReplayPool
from measure.settings import LocalSettings
from search_space import te
from search_space.schedule.trace import Trace
from search_space.space import make_program
from search_space.workloads import Workload
from tests.autotune import fakes
from tests.interpreter import interpret


def branches() -> list[te.Tensor]:
    """A product with an epilogue of its own, read by a reduction and an element-wise stage, which are joined."""
    a = te.placeholder((24, 40), name="a")
    b = te.placeholder((40, 48), name="b", constant=True)
    scale = te.placeholder((24,), name="scale")
    k, j = te.reduce_axis((0, 40), "k"), te.reduce_axis((0, 48), "r")
    c = te.compute((24, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    d = te.compute((24, 48), lambda i, j: te.maximum(c[i, j] * scale[i], c[i, j] * 0.1), name="d")
    top = te.compute((24,), lambda i: te.max(d[i, j], axis=j), name="top")
    return [scale, a, b, te.compute((24, 48), lambda i, j: te.exp(d[i, j] - top[i]) + d[i, j], name="out")]


def expected(scale: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    c = a.astype(float) @ b
    d = np.maximum(c * scale[:, None], c * 0.1)
    return np.exp(d - d.max(1, keepdims=True)) + d


def test_a_definition_is_tuned_recorded_resumed_and_replayed(tmp_path: Path) -> None:
    path, options = tmp_path / "records.jsonl", {"batch": 3, "seed": 5, "cost_model": "roofline", "threads": 1}
    with LocalPool(LocalSettings(builders=1)) as pool:
        result = fakes.tune(branches(), trials=6, pool=pool, records=path, **options)
        assert len(result.records) == 6 and result.errors == {}
        assert result.workload.operator == "tensors" and result.gflops > 0
        resumed = fakes.tune(branches(), trials=7, pool=pool, records=path, **options)
    assert resumed.measured_count == 1 and len(resumed.records) == 7

    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((24,), (24, 40), (40, 48))]
    np.testing.assert_allclose(result.kernel(*arrays), expected(*arrays), rtol=1e-4, atol=1e-5)

    with Database(path, readonly=True) as database:
        records = list(database.records())
    best = result.best
    assert best in records
    workload = Workload.from_json(best.trial.workload)  # from the file alone
    assert workload == Workload.of(branches()) and best.workload_key == workload.key
    program = make_program(workload, best.algorithm, Trace.from_json(best.trial.trace))
    assert str(program) == str(result.program)
    named = {spec.name: array for spec, array in zip(workload.inputs, arrays, strict=True)}
    np.testing.assert_allclose(interpret(program, named)["out"], expected(*arrays), rtol=1e-4, atol=1e-5)

    again = fakes.tune(workload, trials=6, pool=ReplayPool.from_records(records), **options)
    assert again.best_seconds == result.best_seconds and again.trace == result.trace


def test_a_wrong_kernel_of_a_definition_would_be_seen() -> None:
    workload = Workload.of(branches())
    inputs = workload.make_inputs(0)
    rtol, atol = workload.tolerance
    right = expected(*inputs)
    assert (np.abs(workload.reference(*inputs) - right) <= atol + rtol * np.abs(right)).all()
    inputs[1][:, 7] = 0
    wrong = expected(*inputs)
    assert (np.abs(wrong - right) > atol + rtol * np.abs(right)).mean() > 0.9


def test_tensors_that_are_no_definition_are_told() -> None:
    *inputs, output = branches()
    with pytest.raises(ValueError, match=r"must be each placeholder that the output reads \(a, b, scale\) once"):
        autotune.tune([*inputs[1:], output], measure=fakes.HashPool())
    with pytest.raises(ValueError, match="`tensors` must be te tensors"):
        fakes.tune([output.op], pool=fakes.HashPool())  # type: ignore[list-item]
