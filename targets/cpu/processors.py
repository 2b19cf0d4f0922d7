"""What a processor that LLVM knows by name can do: LLVM does not list it, but its code for small functions tells."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

_SUM = """
define <16 x float> @f(<16 x float> %a, <16 x float> %b) #0 {
  %c = fadd <16 x float> %a, %b
  ret <16 x float> %c
}
"""
_DOT = """
declare i32 @llvm.vector.reduce.add.v64i32(<64 x i32>)
define i32 @f(ptr %a, ptr %b) #0 {
  %x = load <64 x i8>, ptr %a
  %y = load <64 x i8>, ptr %b
  %u = zext <64 x i8> %x to <64 x i32>
  %s = sext <64 x i8> %y to <64 x i32>
  %p = mul <64 x i32> %u, %s
  %r = call i32 @llvm.vector.reduce.add.v64i32(<64 x i32> %p)
  ret i32 %r
}
"""
_NARROW = """
define <16 x bfloat> @f(<16 x float> %a) #0 {
  %n = fptrunc <16 x float> %a to <16 x bfloat>
  ret <16 x bfloat> %n
}
"""


@cache
def features_of(cpu: str) -> tuple[str, ...]:
    """Those instruction sets of a processor that kernels are written for, by LLVM's names.

    LLVM ends the process over a name it does not know, so that another one asks.

    Raises:
        ValueError: such a name.
    """
    command = [sys.executable, "-m", "targets.cpu.processors", cpu]
    folder = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=folder)
    if done.returncode:
        raise ValueError(f"`target` must name a processor that LLVM knows, but got {cpu!r}")
    return tuple(done.stdout.split())


def _features(cpu: str) -> list[str]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(cpu=cpu, opt=2)

    def code(text: str) -> str:
        attributes = f'attributes #0 = {{ "target-cpu"="{cpu}" "prefer-vector-width"="512" }}'
        return str(machine.emit_assembly(llvm.parse_assembly(text + attributes)))

    sums = code(_SUM)
    if not target.triple.startswith("x86_64"):
        return ["neon"] if target.triple.startswith(("aarch64", "arm64")) else []
    found = ["avx"] if "%ymm" in sums or "%zmm" in sums else []
    if "%zmm" in sums:
        found += ["avx512f"]
        found += ["avx512vnni"] if "vpdpbusd" in code(_DOT) else []
        found += ["avx512bf16"] if "vcvtneps2bf16" in code(_NARROW) else []
    return found


if __name__ == "__main__":
    print(*_features(sys.argv[1]))
