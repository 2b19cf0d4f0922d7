"""docs/vta.md: its code runs, and its figures are what the simulator gives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.vta_template.resnet18 import LAYERS, program
from targets.vta.hardware import PYNQ
from targets.vta.timing import simulate

PAGE = (Path(__file__).parents[3] / "docs" / "vta.md").read_text()


def test_its_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    exec(compile(code, "vta.md", "exec"), names)
    first, second = capsys.readouterr().out.splitlines()
    assert first == "451584 (1, 64, 56, 56)"
    assert second.startswith(str(simulate(program(LAYERS[0], PYNQ).program.table, PYNQ).cycles))


def test_its_calibration_table_is_what_the_simulator_gives() -> None:
    rows = dict(re.findall(r"^\| (C\d+) \| (.*?) \|$", PAGE, re.MULTILINE))
    assert list(rows) == [layer.name for layer in LAYERS]
    for layer in LAYERS:
        measured, simulated, error, _ = rows[layer.name].split(" | ")
        cycles = simulate(program(layer, PYNQ).program.table, PYNQ).cycles
        assert (measured, simulated) == (f"{layer.cycles:,}", f"{cycles:,}")
        assert error == f"{cycles / layer.cycles - 1:+.1%}"


def test_its_constants_are_the_defaults() -> None:
    for name, text in re.findall(r"`(\w+)` = ([\d.,]+\d)", PAGE):
        assert float(text.replace(",", "")) == getattr(PYNQ, name)
