"""The target as a whole: modules, names, what it says where something is missing."""

from __future__ import annotations

import builtins
import ctypes
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from search_space.ir.expr import var
from search_space.ir.stmt import Allocate, LoopProgram, Store
from targets import registry
from targets.base import BuildError, Module, RunError
from targets.cuda import driver, nvrtc
from targets.cuda.nvrtc import CompiledProgram, MissingCompiler, compile_cubin, compile_ptx, read_report
from targets.cuda.target import CudaTarget, get_target
from tests.targets.cuda.programs import at, buffer, loop, matmul_program


def test_names() -> None:
    assert registry.get("cuda").hardware.gpu.arch == "sm_90"
    target = registry.get("cuda:sm_80")
    assert target.name == "cuda:sm_80" and target.limits.shared_block == 163 * 1024
    with pytest.raises(ValueError, match="`target` cuda must be followed by one of sm_80, .*, but got cuda:sm_10"):
        get_target("cuda:sm_10")


def test_a_module_says_what_each_kernel_takes_and_how_it_is_launched() -> None:
    target = CudaTarget()
    module = Module.from_bytes(target.build(matmul_program(16, 16, 32)).to_bytes())
    assert module.object_code[1:4] == b"ELF" and module.metadata["arch"] == "sm_90"
    (launch,) = module.metadata["launches"]["kernels"]
    assert launch["grid"] == [2, 1, 1] and launch["block"] == [2, 2, 1]
    assert launch["arguments"] == ["a", "b", "out"] and launch["registers"] > 8 and launch["spill_bytes"] == 0
    assert launch["shared_bytes"] > 0 and launch["dynamic_shared_bytes"] == 0 and launch["barriers"] == 2
    listings = {name: text(module) for name, text in target.stages.items()}
    assert "__syncthreads();" in listings["cuda"]
    assert "grid 2x1x1, block 2x2x1" in listings["resources"] and "0 bytes spilled" in listings["resources"]
    assert ".visible .entry kernel_0(" in target.assembly(module)
    assert [bytes([code])[0] for code in range(256)] == list(range(256))  # an empty log is a byte that Python shares


def test_shared_memory_asked_for_at_the_launch_is_counted() -> None:
    t = var("t")
    body = loop(
        "t", 64, "threadIdx.x", Allocate(buffer("tile", 20000, scope="shared"), Store("tile", (t,), at("x", t)))
    )
    module = CudaTarget().build(LoopProgram("big", (buffer("x", 64),), body, ()))
    (launch,) = module.metadata["launches"]["kernels"]
    assert launch["dynamic_shared_bytes"] == launch["shared_bytes"] == 80000


def test_spills_are_reported() -> None:
    log = """ptxas info    : Compiling entry function 'kernel_0' for 'sm_90'
ptxas info    : Function properties for kernel_0
ptxas         .     40 bytes stack frame, 36 bytes spill stores, 52 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 40 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compile time = 10.0 ms
"""
    found = read_report(log)["kernel_0"]
    assert (found.registers, found.shared_bytes, found.stack_bytes, found.spill_bytes) == (255, 1024, 40, 88)
    text = """extern "C" __global__ void __launch_bounds__(1024) k(volatile float* x) {
  float a[300];
  #pragma unroll
  for (int i = 0; i < 300; ++i) a[i] = x[i];
  #pragma unroll
  for (int i = 0; i < 300; ++i) x[i] = a[i] * a[299 - i];
}"""
    assert compile_cubin(text, "sm_90").resources["k"].spill_bytes > 0


def test_the_compilers_cache_is_passed_by_as_it_keeps_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    binding, asked = nvrtc._binding(), []

    class Binding:
        def __getattr__(self, name: str) -> Any:
            return getattr(binding, name)

        def nvrtcCompileProgram(self, program: Any, count: int, options: list[bytes]) -> Any:
            asked.extend(options)
            return binding.nvrtcCompileProgram(program, count, options)

    monkeypatch.setattr(nvrtc, "_binding", Binding)
    text = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] += 1; }'
    assert compile_cubin(text, "sm_90").resources.keys() == {"k"}
    assert b"--no-cache" in asked


def test_a_kernel_that_is_not_reported_on_is_an_error_of_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("targets.cuda.target.compile_cubin", lambda text, arch: CompiledProgram(b"", {}))
    with pytest.raises(BuildError, match="NVRTC must report on every kernel, but said nothing of kernel_0"):
        CudaTarget().build(matmul_program(16, 16, 32))


def test_export(tmp_path: Path) -> None:
    target = CudaTarget()
    module = target.build(matmul_program(4, 4, 4))
    assert target.export(module, tmp_path, "mm") == ["mm.cubin", "mm.cu", "mm.json"]
    assert (tmp_path / "mm.cubin").read_bytes() == module.object_code
    described = json.loads((tmp_path / "mm.json").read_text())
    assert described["launches"]["kernels"][0]["name"] == "kernel_0" and described["outputs"] == ["out"]


def test_text_that_is_none_is_refused_with_what_the_compiler_says() -> None:
    with pytest.raises(BuildError, match="NVRTC must accept the emitted code, but said: .*no storage class"):
        compile_cubin("nonsense", "sm_90")
    with pytest.raises(BuildError, match="NVRTC must accept"):
        compile_ptx("nonsense", "sm_90")


def test_without_the_packages_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: object, **more: object) -> object:
        if name.startswith("cuda"):
            raise ImportError(f"No module named {name!r}")
        return real(name, *rest, **more)

    nvrtc._binding.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    try:
        with pytest.raises(MissingCompiler, match=r"must have the packages of the extra `gpu` \(pip install"):
            CudaTarget().build(matmul_program(4, 4, 4))
    finally:
        nvrtc._binding.cache_clear()


def test_without_a_driver_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> object:
        raise OSError(name)

    driver.missing_device.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", absent)
    try:
        sentence = "must run on a machine with an NVIDIA GPU, but this one has no driver"
        assert sentence in CudaTarget().unavailable()
        with pytest.raises(RunError, match=sentence):
            from targets.cuda.device import CudaDevice

            CudaDevice()
    finally:
        driver.missing_device.cache_clear()


class _Driver:
    """A driver of one GPU.

    Args:
        version: version as the driver encodes it: 12080 is 12.8.
    """

    def __init__(self, version: int) -> None:
        self.version = version

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 1
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = self.version
        return 0

    def cuDeviceGet(self, device: Any, number: int) -> int:
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:
        value._obj.value = {75: 9, 76: 0}[attribute]
        return 0


@contextmanager
def _a_gpu(monkeypatch: pytest.MonkeyPatch, version: int = 13000) -> Iterator[None]:
    """A machine with a GPU of sm_90."""
    asked = (driver.missing_device, driver.device_arch)
    for function in asked:
        function.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: _Driver(version))
    try:
        yield
    finally:
        for function in asked:
            function.cache_clear()


@pytest.mark.parametrize(("version", "message"), [(12080, "this machine's is of CUDA 12.8"), (13000, ""), (14010, "")])
def test_a_driver_must_load_what_the_compiler_makes(
    version: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _a_gpu(monkeypatch, version):
        found = CudaTarget().unavailable()
    assert found.endswith(message) and bool(found) == bool(message)


def test_a_gpu_of_another_architecture_is_refused_before_any_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    with _a_gpu(monkeypatch):
        assert [CudaTarget(arch).unavailable() for arch in ("sm_90", "sm_90a")] == ["", ""]
        said = CudaTarget("sm_89", "cuda:sm_89").unavailable()
    assert said == "target cuda:sm_89 must run on a GPU that takes code for sm_89, but this machine's is sm_90"


def test_other_targets_run_everywhere() -> None:
    assert registry.get("cpu").unavailable() == "" and registry.get("vta").unavailable() == ""
