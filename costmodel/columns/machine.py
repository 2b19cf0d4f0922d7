"""The machine that runs column programs: a native loop over instructions, each on a block of candidates.

It is an interpreter, because compiling a sketch's thousand operations would take longer than a tuning run takes to
use them. A block's candidates share the cost of dispatch, and its slots stay in the second-level cache.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.native import ATTRIBUTES, compile_function
from search_space.ir.tape import ADD, DIV, EQ, FLOOR, LE, LT, MAX, MIN, MUL, SELECT, SUB

BLOCK = 64  # candidates that are evaluated at a time
STORE = 13  # (STORE, output, slot): float32 to the output's row

_D, _B = f"<{BLOCK} x double>", f"<{BLOCK} x i1>"
_PLAIN = {ADD: "fadd", SUB: "fsub", MUL: "fmul", DIV: "fdiv"}
_COMPARE = {MIN: "olt", MAX: "ogt", LT: "olt", LE: "ole", EQ: "oeq"}


def run(
    code: NDArray[np.int32],  # (instructions, 5)
    slots: int,
    constants: NDArray[np.float64],
    columns: NDArray[np.float64],  # (variables, n), n a multiple of BLOCK
    out: NDArray[np.float32],  # (outputs, n)
) -> None:
    """Runs a column program on every block of candidates."""
    memory = np.empty(slots * BLOCK + 8)
    skip = -memory.ctypes.data % 64 // 8
    memory[skip : skip + len(constants) * BLOCK] = np.repeat(constants, BLOCK)
    first = memory.ctypes.data + skip * 8
    variables = first + len(constants) * BLOCK * 8
    _function()(
        code.ctypes.data,
        len(code),
        first,
        variables,
        columns.ctypes.data,
        columns.shape[0],
        columns.shape[1],
        out.ctypes.data,
    )


@cache
def _function() -> Any:
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    return compile_function(_text(), "run", pointer, integer, pointer, pointer, pointer, integer, integer, pointer)


def _text() -> str:
    ops = (*_PLAIN, FLOOR, *_COMPARE, SELECT, STORE)
    table = " ".join(f"i32 {op}, label %op{op}" for op in ops)
    return f"""
declare {_D} @llvm.floor.v{BLOCK}f64({_D})
define void @run(ptr noalias %code, i64 %length, ptr noalias %slots, ptr %variables, ptr noalias %columns, i64 %count,
                 i64 %n, ptr noalias %out) #0 {{
entry:
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %block, label %exit
block:
  %i = phi i64 [ 0, %entry ], [ %i.next, %block.end ]
  %empty = icmp eq i64 %count, 0
  br i1 %empty, label %start, label %copy
copy:
  %v = phi i64 [ 0, %block ], [ %v.next, %copy ]
  %v.row = mul i64 %v, %n
  %v.at = add i64 %v.row, %i
  %v.from = getelementptr double, ptr %columns, i64 %v.at
  %v.slot = mul i64 %v, {BLOCK}
  %v.to = getelementptr double, ptr %variables, i64 %v.slot
  %v.value = load {_D}, ptr %v.from, align 8
  store {_D} %v.value, ptr %v.to, align 64
  %v.next = add i64 %v, 1
  %v.more = icmp slt i64 %v.next, %count
  br i1 %v.more, label %copy, label %start
start:
  %some = icmp sgt i64 %length, 0
  br i1 %some, label %fetch, label %block.end
fetch:
  %k = phi i64 [ 0, %start ], [ %k.next, %next ]
  %at = mul i64 %k, 20
  %p0 = getelementptr i8, ptr %code, i64 %at
{_fields()}
  switch i32 %f0, label %next [ {table} ]
{"".join(_case(op) for op in ops)}
next:
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %length
  br i1 %more, label %fetch, label %block.end
block.end:
  %i.next = add i64 %i, {BLOCK}
  %i.more = icmp slt i64 %i.next, %n
  br i1 %i.more, label %block, label %exit
exit:
  ret void
}}
attributes #0 = {{ {ATTRIBUTES} }}
"""


def _fields() -> str:
    """Returns code that loads an instruction's five numbers and computes the addresses of slots for four of them."""
    lines = ["  %f0 = load i32, ptr %p0, align 4"]
    for j in range(1, 5):
        lines += [
            f"  %p{j} = getelementptr i32, ptr %p0, i64 {j}",
            f"  %f{j} = load i32, ptr %p{j}, align 4",
            f"  %w{j} = sext i32 %f{j} to i64",
            f"  %e{j} = mul i64 %w{j}, {BLOCK}",
            f"  %s{j} = getelementptr double, ptr %slots, i64 %e{j}",
        ]
    return "\n".join(lines)


def _case(op: int) -> str:
    operands = {FLOOR: 1, STORE: 1, SELECT: 3}.get(op, 2)
    lines = [f"op{op}:"]
    lines += [f"  %x{op}.{j} = load {_D}, ptr %s{j + 2}, align 64" for j in range(operands)]
    a, b, c = (f"%x{op}.{j}" for j in range(3))
    out = f"%r{op}"
    if op in _PLAIN:
        lines.append(f"  {out} = {_PLAIN[op]} {_D} {a}, {b}")
    elif op == FLOOR:
        lines.append(f"  {out} = call {_D} @llvm.floor.v{BLOCK}f64({_D} {a})")
    elif op in _COMPARE:
        lines.append(f"  %c{op} = fcmp {_COMPARE[op]} {_D} {a}, {b}")
        if op in (MIN, MAX):
            lines.append(f"  {out} = select {_B} %c{op}, {_D} {a}, {_D} {b}")
        else:
            lines.append(f"  {out} = uitofp {_B} %c{op} to {_D}")
    elif op == SELECT:
        lines.append(f"  %c{op} = fcmp une {_D} {a}, zeroinitializer")
        lines.append(f"  {out} = select {_B} %c{op}, {_D} {b}, {_D} {c}")
    else:
        lines += [
            f"  {out} = fptrunc {_D} {a} to <{BLOCK} x float>",
            "  %row = mul i64 %w1, %n",
            "  %cell = add i64 %row, %i",
            "  %to = getelementptr float, ptr %out, i64 %cell",
            f"  store <{BLOCK} x float> {out}, ptr %to, align 4",
            "  br label %next",
        ]
        return "\n".join(lines) + "\n"
    lines += [f"  store {_D} {out}, ptr %s1, align 64", "  br label %next"]
    return "\n".join(lines) + "\n"
