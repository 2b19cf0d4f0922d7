"""Measures the machine's peak: fused multiply-adds on registers alone."""

from __future__ import annotations

import ctypes
import time
from functools import cache

import llvmlite.binding as llvm

ACCUMULATORS = 12


def _probe_text(lanes: int) -> str:
    kind = f"<{lanes} x float>"
    names = range(ACCUMULATORS)
    phis = "\n".join(f"  %a{i} = phi {kind} [ splat (float 1.0), %e ], [ %b{i}, %l ]" for i in names)
    body = "\n".join(f"  %b{i} = call {kind} @llvm.fma.v{lanes}f32({kind} %x, {kind} %y, {kind} %a{i})" for i in names)
    total, sums = "%a0", []
    for i in range(1, ACCUMULATORS):
        sums.append(f"  %s{i} = fadd {kind} {total}, %b{i}")
        total = f"%s{i}"
    bits = lanes * 32
    return f"""
declare {kind} @llvm.fma.v{lanes}f32({kind}, {kind}, {kind})
define float @probe(i64 %n, float %z) "min-legal-vector-width"="{bits}" "prefer-vector-width"="{bits}" {{
e:
  %x0 = insertelement {kind} poison, float %z, i32 0
  %x = shufflevector {kind} %x0, {kind} poison, <{lanes} x i32> zeroinitializer
  %y = fadd {kind} %x, %x
  br label %l
l:
  %i = phi i64 [ 0, %e ], [ %j, %l ]
{phis}
{body}
  %j = add i64 %i, 1
  %c = icmp ult i64 %j, %n
  br i1 %c, label %l, label %d
d:
{chr(10).join(sums)}
  %r = extractelement {kind} {total}, i32 0
  ret float %r
}}
"""


@cache
def core_peak_flops(lanes: int, cpu: str, features: str) -> float:
    """float32 operations a second of one core with vectors of `lanes`; the fastest of 20 runs of about 1 ms."""
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=2)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    code = machine.emit_object(llvm.parse_assembly(_probe_text(lanes)))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64, ctypes.c_float)(engine.get_function_address("probe"))
    count, best = 400_000, float("inf")
    for _ in range(20):
        start = time.perf_counter()
        function(count, 1e-30)
        best = min(best, time.perf_counter() - start)
    return count * ACCUMULATORS * lanes * 2 / best
