"""A GPU for tests, whose machine code is the text of kernels and whose devices are fake; runs without references.

Runs time their networks for a few turns only, since these tests do not look at the precision of a figure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pytest

from search_space.workloads import Workload
from targets.cuda.nvrtc import CompiledProgram, Resources
from tests.targets.cuda.fake_device import RecordingTarget

KERNEL = re.compile(r"__launch_bounds__\(\d+\) (\w+)\(")


@pytest.fixture(scope="session", autouse=True)
def few_turns() -> Iterator[None]:
    """Runs time their network in 4 turns with ONNX Runtime, where 20 take 14 seconds; a module's fixtures do, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autotune.compiler.finalize.TURNS", 4)
        yield


@pytest.fixture(autouse=True)
def no_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a test do not time ONNX Runtime, which takes each a process and a second; a module's fixtures do."""

    def nothing(workloads: Sequence[Workload], *arguments: object, **options: object) -> list[float | None]:
        return [None] * len(workloads)

    monkeypatch.setattr("autotune.graph.reference.onnxruntime_seconds", nothing)


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> RecordingTarget:
    """Stands for the CUDA target; what it builds runs on fake devices."""
    made = RecordingTarget()
    monkeypatch.setattr("targets.cuda.target.get_target", lambda spec="cuda": made)
    return made


@pytest.fixture
def text_as_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """No NVRTC: the machine code is the text."""

    def compile_text(text: str, arch: str) -> CompiledProgram:
        used = Resources(32, 0, 0, 0)
        return CompiledProgram(b"\x7fELF" + text.encode(), dict.fromkeys(KERNEL.findall(text), used))

    monkeypatch.setattr("targets.cuda.target.compile_cubin", compile_text)
