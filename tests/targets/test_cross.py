"""Code for AArch64, made here."""

from __future__ import annotations

import struct

import pytest

from measure.executor import KernelExecutor
from search_space import workloads
from search_space.ir.expr import load, make, var
from search_space.ir.stmt import LoopProgram, Store
from targets import registry
from targets.base import Module, RunError
from targets.cpu.kernel import llvm
from tests.measure.candidates import candidates
from tests.targets.cuda.programs import buffer, loop

SPEC = "cpu:aarch64:cortex-a72"
HOST = llvm.get_process_triple().partition("-")[0]


def test_an_object_is_for_aarch64_and_uses_neon() -> None:
    target = registry.get(SPEC)
    assert (target.hardware.vector_bytes, target.hardware.vector_registers) == (16, 32)
    assert target.hardware.features == ("neon",)
    (trial,) = candidates(workloads.matmul(32, 48, 64), 1, target=SPEC)
    module = Module.from_bytes(KernelExecutor().build(trial))
    kind, machine = struct.unpack_from("<HH", module.object_code, 16)
    assert (module.object_code[:4], kind, machine) == (b"\x7fELF", 1, 183)  # a relocatable file, EM_AARCH64
    assert ".4s, v" in target.assembly(module) and module.metadata["triple"].startswith("aarch64")


@pytest.mark.parametrize("lanes", [4, 1])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_an_extreme_that_keeps_nan_is_one_instruction(dtype: str, lanes: int) -> None:
    at = (var("i"),)
    value = make("max", load("x", at, dtype), load("z", at, dtype))
    params = tuple(buffer(name, lanes, dtype=dtype) for name in "xzy")
    target = registry.get(SPEC)
    module = target.build(LoopProgram("test", params, loop("i", lanes, "vectorize", Store("y", at, value)), ("y",)))
    text = target.assembly(module)
    assert text.count("\tfmax\t") == 1 and "fcmp" not in text and "fcmgt" not in text and "\tbl\t" not in text


@pytest.mark.skipif(HOST == "aarch64", reason="on aarch64 it may run")
def test_it_is_refused_where_it_cannot_run() -> None:
    (trial,) = candidates(workloads.matmul(8, 8, 8), 1, target=SPEC)
    module = Module.from_bytes(KernelExecutor().build(trial))
    with pytest.raises(RunError, match=f"a module must be for {HOST} to run here, but got one for aarch64"):
        registry.get("cpu").load(module)


def test_a_processor_must_be_known() -> None:
    with pytest.raises(ValueError, match="knows for aarch64, but got 'nonsense'"):
        registry.get("cpu:aarch64:nonsense")
    assert registry.get("cpu:aarch64").cpu == "generic"
