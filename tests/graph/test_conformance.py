"""ONNX's own node tests of every operator that is imported."""

from __future__ import annotations

import re

import pytest

from autotune.graph.importer import HANDLERS, ModelError
from tests.graph.conformance import EXCLUDED, cases, outside, passing

OPERATORS = sorted(HANDLERS)
pytestmark = pytest.mark.xdist_group("conformance")  # all are generated, which takes seconds, at the first of them


@pytest.mark.parametrize("op", OPERATORS)
def test_every_test_of_an_operator_passes_unless_it_is_excluded(op: str) -> None:
    failed = {}
    for case in (case for case in cases().values() if case.op == op and outside(case) is None):
        try:
            case.run()
        except (ModelError, AssertionError) as error:
            failed[case.name] = str(error)
    assert not failed


def test_every_exclusion_is_needed() -> None:
    for pattern in EXCLUDED:
        matching = [case for case in cases().values() if re.fullmatch(pattern, case.name)]
        assert matching, pattern
        failed = 0
        for case in matching:
            try:
                case.run()
            except (ModelError, AssertionError, TypeError):
                failed += 1
        assert failed, pattern


def test_most_tests_pass() -> None:
    good, everything = passing()
    print(f"{good} of ONNX's {everything} tests of the {len(OPERATORS)} operators pass")
    assert good >= 600
    assert sum(outside(case) is None for case in cases().values()) == good
