"""Operators of the library with one argument open: definitions, records by their names; bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.config import Measure
from autotune.tuner.sizes import Family, tune_for_sizes
from measure.database import Database
from search_space import te, workloads
from search_space.ir.stmt import substitute_program
from search_space.lower import lower
from search_space.schedule.state import initial_state
from targets import registry
from tests.autotune.fakes import HashPool
from tests.interpreter import interpret

FAMILIES = {
    "dense": Family("dense", "batch", {"in_features": 5, "out_features": 6, "bias": True, "activation": "relu"}),
    "matmul": Family("matmul", "m", {"n": 4, "k": 3}),
    "softmax": Family("softmax", "rows", {"columns": 7}),
    "layer_norm": Family("layer_norm", "rows", {"columns": 7}),
    "conv2d": Family("conv2d", "batch", {"height": 5, "width": 4, "in_channels": 2, "out_channels": 3, "padding": 1}),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_open_definitions_are_those_of_each_size(name: str) -> None:
    family = FAMILIES[name]
    *inputs, output = family(te.var("n", 1, 9))
    program = lower(initial_state([output], inputs=inputs))
    assert program.sizes == {"n": (1, 9)}
    for n in (1, 4):
        workload = family.workload(n)
        arrays = workload.make_inputs(n)
        given = {spec.name: array for spec, array in zip(workload.inputs, arrays, strict=True)}
        found = interpret(substitute_program(program, {"n": n}), given)[workload.output.name]
        rtol, atol = workload.tolerance
        np.testing.assert_allclose(found, workload.reference(*arrays), rtol, atol)


def test_records_are_those_of_the_named_workloads(tmp_path: Path) -> None:
    path, family = tmp_path / "records.jsonl", FAMILIES["dense"]
    measure = Measure(pool=HashPool(), threads=1)
    found = tune_for_sizes(
        family, [1, 4, 9], trials=3, cost_model="roofline", measure=measure, search_at=[1, 9], carried=2, records=path
    )
    with Database(path, readonly=True) as database:
        for n in (1, 4, 9):
            key = workloads.dense(n, 5, 6, bias=True, activation="relu").key
            assert len(list(database.records(key, registry.get("cpu").name))) > 2
    for n in (1, 3, 9):
        arrays = family.workload(n).make_inputs(n)
        y = np.zeros((n, 6), np.float32)
        found.kernel(*arrays, y)
        np.testing.assert_allclose(y, family.workload(n).reference(*arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dens", "batch", {}), "dens"),
        (("dense", "bach", {}), "`argument` must be one of batch, in_features, .* but got 'bach'; did you mean"),
        (("dense", "batch", {"batch": 3}), "`batch` must not be given, as it is open, but got 3"),
    ],
)
def test_what_is_no_family_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Family(*arguments)


def test_arguments_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ValueError, match="`dense` must be given in_features"):
        tune_for_sizes(Family("dense", "batch", {"out_features": 6}), [1, 4])
