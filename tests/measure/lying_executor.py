"""An executor of hand-written kernels that compute twice their input, and of others that only seem to.

The trace's one step names the `lie`; what is run is machine code in a real worker.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm

from measure.executor import KernelExecutor
from search_space import te
from search_space.workloads import Workload
from targets import registry
from targets.base import Module, Parameter

SIZE = 50  # no multiple of a vector or a line

_KERNEL = """
{header}
@calls = internal global i64 0
@seen = internal global [{size} x {kind}] zeroinitializer
declare float @llvm.maxnum.f32(float, float)

define void @kernel_pack0(ptr %arguments, i32 %threads, ptr %workspace) {{
entry:
  %from = load ptr, ptr %arguments
  %to.at = getelementptr ptr, ptr %arguments, i64 1
  %to = load ptr, ptr %to.at
  %last.at = getelementptr {kind}, ptr %from, i64 {packed}
  %last = load volatile {kind}, ptr %last.at
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 {bytes}, i1 false)
  ret void
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define void @kernel(ptr %arguments, i32 %threads, ptr %workspace) {{
entry:
  %x = load ptr, ptr %arguments
  %y.at = getelementptr ptr, ptr %arguments, i64 {output}
  %y = load ptr, ptr %y.at
  %before = load i64, ptr @calls
  %call = add i64 %before, 1
  store i64 %call, ptr @calls
  {start}
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %x.i = getelementptr {kind}, ptr %x, i64 %i
  %y.i = getelementptr {kind}, ptr %y, i64 %i
  %seen.i = getelementptr {kind}, ptr @seen, i64 %i
  %value = load {kind}, ptr %x.i
  %twice = {add} {kind} %value, %value
  {body}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, {size}
  br i1 %more, label %loop, label %done
done:
  {end}
  ret void
}}
"""
_GO = "br label %loop"
_STORE = "store {kind} %twice, ptr %y.i"
_TOUCH = "%at = getelementptr {kind}, ptr %{array}, i64 {place}\n"
LIES: dict[str, dict[str, Any]] = {
    "none": {},
    "wrong later": {
        "body": "%late = icmp ugt i64 %call, {from_call}\n"
        "%shown = select i1 %late, {kind} %value, {kind} %twice\nstore {kind} %shown, ptr %y.i"
    },
    "idle later": {"start": "%late = icmp ugt i64 %call, {from_call}\nbr i1 %late, label %done, label %loop"},
    "remembers": {
        "body": "%first = icmp ult i64 %call, {from_call}\n%kept = load {kind}, ptr %seen.i\n"
        "%shown = select i1 %first, {kind} %twice, {kind} %kept\n"
        "store {kind} %shown, ptr %seen.i\nstore {kind} %shown, ptr %y.i"
    },
    "writes behind": {"end": _TOUCH + "store {kind} %value, ptr %at"},
    "reads behind": {
        "body": _TOUCH + "%more.value = load {kind}, ptr %at\n%none = fmul {kind} %more.value, 0.0\n"
        "%shown = fadd {kind} %twice, %none\nstore {kind} %shown, ptr %y.i"
    },
    "reads on": {"end": _TOUCH + "%more.value = load volatile {kind}, ptr %at"},
    "workspace": {
        "body": "%was = load {kind}, ptr %workspace\n%shown = {add} {kind} %twice, %was\nstore {kind} %shown, ptr %y.i"
    },
    "complement": {"body": "%was = load {kind}, ptr %y.i\n%shown = xor {kind} %was, -1\nstore {kind} %shown, ptr %y.i"},
    "maximum": {
        "body": "%was = load float, ptr %y.i\n%shown = call float @llvm.maxnum.f32(float %was, float %twice)\n"
        "store float %shown, ptr %y.i"
    },
}


def twice(dtype: str, constant: bool = False) -> Workload:
    """y = x + x; with a constant that is packed and has no part in it."""
    x, c = te.placeholder((SIZE,), dtype, name="x"), te.placeholder((SIZE,), dtype, name="c", constant=True)
    zero = 0 if dtype == "int32" else 0.0
    y = te.compute((SIZE,), (lambda i: x[i] + x[i] + c[i] * zero) if constant else (lambda i: x[i] + x[i]), name="y")
    return Workload.of([x, c, y] if constant else [x, y])


class LyingExecutor(KernelExecutor):
    """An executor that builds the kernel that the trace asks for; all else is as with real trials."""

    def build(self, trial: Any) -> bytes:
        step = dict(trial.trace[0])
        workload = Workload.from_json(dict(trial.workload))
        dtype, constant = workload.output.dtype, len(workload.inputs) > 1
        target = registry.get("cpu")
        facts: dict[str, Any] = {
            "kind": {"float32": "float", "int32": "i32"}[dtype],
            "add": "fadd" if dtype == "float32" else "add",
            "from_call": step.get("from_call", 2),
            "place": step.get("place", 0),
            "array": step.get("array", "y"),
        }
        parts = {"start": _GO, "body": _STORE, "end": "", **LIES[step["lie"]]}
        text = _KERNEL.format(
            header=target.header(),
            size=SIZE,
            bytes=4 * SIZE,
            packed=step.get("packed", 0),
            output=1 + constant,
            **facts,
            **{name: part.format(**facts) for name, part in parts.items()},
        )
        code = target.machine.emit_object(llvm.parse_assembly(text))
        x, c, y = (Parameter(name, (SIZE,), dtype, name == "c") for name in "xcy")
        packed = Parameter("c.packed", (SIZE,), dtype, True, ("c",))
        parameters, sources = ((x, packed, y), (x, c)) if constant else ((x, y), (x,))
        facts = {"shared_bytes": 0, "scratch_bytes": 64, "triple": target.machine.triple}
        return Module("kernel", "cpu", code, text, parameters, ("y",), sources, facts).to_bytes()
