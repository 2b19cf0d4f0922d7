"""Instruction sets of processors that LLVM knows by name, inferred from its code for small functions."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

TRIPLES = {"aarch64": "aarch64-unknown-linux-gnu"}
"""LLVM's target triples of other architectures than this host's, for which code can be built here."""

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
_LONG = """
define <8 x i64> @f(<8 x double> %a) #0 {
  %n = fptosi <8 x double> %a to <8 x i64>
  ret <8 x i64> %n
}
"""

_WORDS = """
define <32 x i16> @f(<32 x i16> %a, <32 x i16> %b) #0 {
  %c = add <32 x i16> %a, %b
  ret <32 x i16> %c
}
"""

_TILES = ("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids")
"""LLVM's names of processors with tile registers: it ends the process where their code is asked of others."""


def target_triple(architecture: str) -> str:
    """Returns the target triple of an architecture; that of this host for an empty name."""
    return TRIPLES[architecture] if architecture else llvm.get_default_triple()


@cache
def read_features(cpu: str, architecture: str = "") -> tuple[str, ...]:
    """Lists the instruction sets of a processor that kernels use, by LLVM's names.

    LLVM does not list them, and may end the process over a name it does not know, so a child process asks.

    Args:
        cpu: LLVM's name.
        architecture: a name of `TRIPLES`; empty: this host's.

    Raises:
        ValueError: LLVM does not know the processor.
    """
    command = [sys.executable, "-m", "targets.cpu.processors", cpu, architecture]
    folder = Path(__file__).parents[2]
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False, timeout=60, cwd=folder
    )
    if done.returncode or "not a recognized processor" in done.stderr:  # x86 ends over it, AArch64 goes on
        where = f" for {architecture}" if architecture else ""
        raise ValueError(f"`target` must name a processor that LLVM knows{where}, but got {cpu!r}")
    return tuple(done.stdout.split())


def probed_features(cpu: str, architecture: str = "") -> list[str]:
    """Lists the instruction sets in this process; the name must be one that LLVM knows."""
    if architecture:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    else:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(target_triple(architecture))
    machine = target.create_target_machine(cpu=cpu, opt=2)

    def code(text: str) -> str:
        attributes = f'attributes #0 = {{ "target-cpu"="{cpu}" "prefer-vector-width"="512" }}'
        return str(machine.emit_assembly(llvm.parse_assembly(text + attributes)))

    sums = code(_SUM)
    if not target.triple.startswith("x86_64"):
        return ["neon"] if target.triple.startswith(("aarch64", "arm64")) else []
    # Arguments are in the widest registers, words are added in those that the instruction has.
    words = [line for line in code(_WORDS).splitlines() if "paddw" in line]
    features = ["avx"] if "%ymm" in sums or "%zmm" in sums else []
    features += ["avx2"] if any("%ymm" in line or "%zmm" in line for line in words) else []
    features += ["avx512bw"] if any("%zmm" in line for line in words) else []
    if "%zmm" in sums:
        features += ["avx512f"]
        features += ["avx512dq"] if "vcvttpd2qq" in code(_LONG) else []
        features += ["avx512vnni"] if "vpdpbusd" in code(_DOT) else []
        features += ["avx512bf16"] if "vcvtneps2bf16" in code(_NARROW) else []
        features += ["amx-bf16", "amx-int8"] if cpu in _TILES else []
    elif "vpdpbusd" in code(_DOT):
        features += ["avxvnni"]
    return features


if __name__ == "__main__":
    print(*probed_features(*sys.argv[1:]))
