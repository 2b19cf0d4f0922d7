"""ONNX's own node tests: in NumPy all that apply, through kernels a sample of them."""

from __future__ import annotations

import re

import pytest

from autotune.compiler.schedules import Schedules
from autotune.graph.frontends.onnx.importer import HANDLERS, UnsupportedModelError
from tests.autotune.fakes import settings_with
from tests.autotune.graph.compiled import failing
from tests.autotune.graph.conformance import CONSTANT, EXCLUSIONS, REFUSALS, Case, cases, outside, passing, sample

pytestmark = [
    pytest.mark.xdist_group("conformance"),  # all are generated, which takes seconds, at the first of them
    pytest.mark.usefixtures("kernel_cache"),
]

COMPILED_CASES = 60
"""Tests of the sample."""


def test_every_test_passes_unless_it_is_excluded() -> None:
    failed = {}
    for case in passing():
        try:
            case.run()
        except (UnsupportedModelError, AssertionError) as error:
            failed[case.name] = str(error)
    assert not failed


def _fails(case: Case) -> bool:
    try:
        case.run()
    except (UnsupportedModelError, AssertionError, TypeError):
        return True
    return False


def test_every_exclusion_is_needed() -> None:
    for pattern in EXCLUSIONS:
        matching = [case for case in cases().values() if re.fullmatch(pattern, case.name)]
        assert matching, pattern
        assert any(map(_fails, matching)), pattern
    for op, reason in REFUSALS.items():
        assert any(map(_fails, (case for case in cases().values() if case.op == op))), op
        assert any(outside(case) == reason for case in cases().values() if case.op == op), op


def test_constants_are_of_operators_that_have_tests() -> None:
    assert set(CONSTANT) <= {case.op for case in cases().values()} | set(HANDLERS)


def test_most_tests_apply() -> None:
    good, everything = len(passing()), len(cases())
    print(f"{good} of ONNX's {everything} node tests apply")
    assert good >= 1300


def test_a_sample_passes_through_kernels() -> None:
    settings = settings_with()
    drawn = sample(0, COMPILED_CASES)
    assert len({case.op for case in drawn}) > COMPILED_CASES // 3
    assert failing(drawn, Schedules(None, settings), settings) == {}


def test_a_wrong_result_is_seen() -> None:
    settings = settings_with()
    case = cases()["test_add"]
    (name,) = case.outputs
    wrong = Case(case.name, case.op, case.model, case.inputs, {name: case.outputs[name] + 1}, case.rtol, case.atol)
    assert set(failing([wrong, cases()["test_sub"]], Schedules(None, settings), settings)) == {"test_add"}
