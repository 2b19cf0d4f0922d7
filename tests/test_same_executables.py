"""The proof that executables are the same notices what differs, and compiles alike twice."""

from __future__ import annotations

from typing import Any

import pytest

from targets.executable import Executable
from tests import executable_cases
from tests.same_executables import differences

CASE = {"name": "images", "build": "images", "options": {"target": "cpu"}, "threads": 1}


def test_what_differs_is_named() -> None:
    assert differences({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "0", "d": "3"}) == ["b", "c", "d"]


def test_a_case_is_compiled_alike_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Executable, "__init__", Executable.__init__)  # `observe` replaces it
    monkeypatch.setenv("AUTOTUNE_CACHE", "none")
    first = executable_cases.compile_case(CASE)
    assert {name.partition("/")[2].rpartition(".")[2] for name in first} >= {"json", "so", "(weights)"}
    assert executable_cases.compile_case(CASE) == first


def test_other_weights_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Executable, "__init__", Executable.__init__)
    monkeypatch.setenv("AUTOTUNE_CACHE", "none")
    first = executable_cases.compile_case(CASE)
    plain = executable_cases.images

    def change_weight() -> Any:
        model = plain()
        raw = bytearray(model.graph.initializer[0].raw_data)
        raw[3] ^= 0x80  # the sign of one weight
        model.graph.initializer[0].raw_data = bytes(raw)
        return model

    monkeypatch.setattr(executable_cases, "images", change_weight)
    assert "0/(weights)" in differences(first, executable_cases.compile_case(CASE))
