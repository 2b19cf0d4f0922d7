"""What every target promises: that of the CPU, and one written by `docs/adding_a_target.md` and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.run.folder import write_best
from measure.errors import ErrorClass
from measure.executor import KernelExecutor
from measure.pool import Trial
from search_space import workloads
from search_space.ir.interp import numpy_dtype
from search_space.space import generate, program_of
from search_space.workloads import Workload
from targets import registry
from targets.base import BuildError, Module, RunError, Target
from tests.autotune import fakes
from tests.properties.running import compiled, interpreted

WORKLOADS = (
    workloads.matmul(5, 6, 7),
    workloads.conv2d(height=5, width=4, in_channels=3, out_channels=4, padding=1, bias=True, activation="relu"),
    workloads.softmax(3, 9),
    workloads.reduce((3, 5), 1, "max", "int32"),
)


@pytest.fixture(params=["cpu", "pyloops"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setitem(registry.TARGETS, "pyloops", "tests.targets.pyloops:get_target")
    return registry.get(request.param)


def program(workload: Workload, target: Target) -> tuple[Any, Any]:
    sketch = next(s for s in generate(workload, target.hardware, ["direct"]).sketches)
    trace = sketch.trace([0] * len(sketch.groups))
    return program_of(workload, "direct", trace), trace


@pytest.mark.parametrize("workload", WORKLOADS, ids=[w.operator for w in WORKLOADS])
def test_kernels_write_what_the_interpreter_says(workload: Workload, target: Target) -> None:
    lowered, _ = program(workload, target)
    arrays = dict(zip([s.name for s in workload.inputs], workload.make_inputs(0), strict=True))
    for name, wanted in interpreted(lowered, arrays).items():
        np.testing.assert_allclose(compiled(target, lowered, arrays)[name], wanted, rtol=1e-5, atol=1e-6)


def test_modules_are_plain_data_and_exported_as_files(target: Target, tmp_path: Path) -> None:
    lowered, _ = program(WORKLOADS[1], target)
    module = target.build(lowered)
    again = Module.from_bytes(module.to_bytes())
    assert again == module and json.dumps(module.metadata) and module.target == target.name
    assert target.assembly(module) and all(target.listings(module).values())
    written = target.export(module, tmp_path, "best")
    assert written and all((tmp_path / file).stat().st_size for file in written)
    assert {file.name for file in tmp_path.iterdir()} == set(written)
    inputs, out = WORKLOADS[1].make_inputs(1), np.empty(WORKLOADS[1].output.shape, numpy_dtype("float32"))
    target.load(again)(*inputs, out)
    np.testing.assert_allclose(out, WORKLOADS[1].reference(*inputs), rtol=1e-4, atol=1e-5)


def test_what_a_kernel_does_not_take_is_refused(target: Target) -> None:
    kernel = target.load(target.build(program(WORKLOADS[0], target)[0]))
    a, b = WORKLOADS[0].make_inputs(0)
    out = np.empty(WORKLOADS[0].output.shape, np.float32)
    for wrong in ((a, out), (a, b.astype(np.float64), out), (a, b, out[:-1])):
        with pytest.raises(RunError, match="must be"):
            kernel(*wrong)
    with pytest.raises(BuildError, match="`target` of a whole network must be"):
        Target.link(target, None, Path())  # type: ignore[arg-type]


def test_it_is_measured_and_tuned_and_the_best_is_written(target: Target, tmp_path: Path) -> None:
    workload, executor = WORKLOADS[2], KernelExecutor()
    _, trace = program(workload, target)
    trial = Trial.of(workload, "direct", trace, target=target.name)
    task = executor.prepare(trial)
    bound = executor.bind(trial, executor.build(trial), task, 1)
    np.testing.assert_allclose(bound.run(1), task.expected, rtol=1e-4, atol=1e-6)
    seconds = bound.time(3, 1)
    assert seconds.shape == (3,) and (seconds > 0).all() and all(isinstance(v, float) for v in bound.metrics().values())
    options: dict[str, Any] = {"trials": 3, "batch": 3, "cost_model": "roofline", "threads": 1, "finalists": 0}
    result = fakes.tune(workload, target=target.name, pool=fakes.HashPool(), **options)
    assert result.best is not None and result.best.error is ErrorClass.ok
    assert write_best(result, tmp_path) is None
    files = {file.name for file in (tmp_path / "best" / result.name).iterdir()}
    assert files > {"schedule.txt", "program.txt", "kernel.s"} and {"kernel.module", "kernel.o"} & files
