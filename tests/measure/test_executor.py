"""The executor of real kernels: what it hands on, and which failure is which class."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import targets
from measure.errors import ErrorClass, TrialFailure
from search_space.schedule.errors import ScheduleError
from targets.base import BuildError, Module, RunError
from tests.measure.helpers import trial

MODULE = Module("kernel", "fake", b"\x7fELF", "define void @kernel()", (), (), ())


@dataclass
class FakeWorkload:
    """Twice its first input; draws what it likes."""

    data: dict[str, Any]
    inputs = (SimpleNamespace(constant=False), SimpleNamespace(constant=True))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> FakeWorkload:
        return cls(data)

    def get_tolerance(self, algorithm):
        return (1e-4, 1e-5)

    def make_inputs(self, seed):
        rng = np.random.default_rng(seed)
        return [rng.uniform(5, 6, (2, 3)).astype(np.float32), np.arange(4, dtype=np.int8)]

    def other_inputs(self, inputs, seed):
        return [inputs[0] + 1, inputs[1]]

    def reference(self, a, b):
        return 2 * a


class FakeTarget:
    """A target that fails as the program says."""

    cache_bytes = 12345

    def build(self, program):
        if program == "build":
            raise BuildError("no code for tensor intrinsics")
        return MODULE

    def refusal(self, module):
        return ""

    def load(self, module):
        assert module == MODULE
        return self

    def bind(self, inputs, copies, fenced: bool):
        assert fenced
        if copies > 1:
            raise RunError("constants are not packed")
        return ("bound", inputs, copies)


def make_program(workload, algorithm, trace):
    fault = trace.to_json()[0].get("fault")
    if fault == "schedule":
        raise ScheduleError("`factor` must divide extent, but got factor=3, extent=8")
    return fault


@pytest.fixture
def executor(monkeypatch):
    def install(name, **members):
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    trace = SimpleNamespace(from_json=lambda steps: SimpleNamespace(to_json=lambda: steps))
    install("search_space.schedule.trace", Trace=trace)
    install("search_space.space", make_program=make_program)
    install("search_space.workloads", Workload=FakeWorkload)
    registry = install("targets.registry", get=lambda name: {"cpu": FakeTarget()}[name])
    monkeypatch.setattr(targets, "registry", registry, raising=False)
    monkeypatch.delitem(sys.modules, "measure.executor", raising=False)
    yield importlib.import_module("measure.executor").KernelExecutor()
    sys.modules.pop("measure.executor", None)


def test_a_built_module_travels_as_bytes_and_is_bound(executor):
    module = executor.build(trial())
    task = executor.prepare(trial())
    assert executor.bind(trial(), module, task, 1) == ("bound", task.inputs, 1)


@pytest.mark.parametrize(("fault", "error"), [("schedule", "instantiation"), ("build", "compile")])
def test_failures_of_a_build_have_their_class(executor, fault, error):
    with pytest.raises(TrialFailure, match="must divide|no code") as caught:
        executor.build(trial(fault=fault))
    assert caught.value.error is ErrorClass(error)


def test_a_kernel_that_cannot_be_bound_is_a_crash(executor):
    with pytest.raises(TrialFailure, match="not packed") as caught:
        executor.bind(trial(), executor.build(trial()), executor.prepare(trial()), 2)
    assert caught.value.error is ErrorClass.crash


def test_the_task_follows_the_seed_and_knows_its_constants(executor):
    task, again, other = (executor.prepare(trial(options={"seed": seed})) for seed in (3, 3, 4))
    assert task.expected.shape == (2, 3) and (task.rtol, task.atol) == (1e-4, 1e-5)
    assert task.constant_bytes == 4 and task.cache_bytes == 12345
    assert (task.inputs[0] == again.inputs[0]).all() and (task.inputs[0] != other.inputs[0]).any()
    assert task.inputs[0].min() >= 5, "the workload knows what it is defined on"
    np.testing.assert_array_equal(task.expected, 2 * task.inputs[0])
    np.testing.assert_array_equal(task.others_expected, 2 * (task.inputs[0] + 1))
    assert task.others[1] is task.inputs[1], "constants are packed once"
    unchecked = executor.prepare(trial(), False)
    assert unchecked.expected is None is unchecked.others_expected and len(unchecked.others) == 2
