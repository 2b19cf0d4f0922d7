"""Buffers of one name, allocated in several places, become buffers of several names.

The rest of a peeled loop repeats all that the loop does, its buffers included. The storage of a buffer depends on the
place of its allocation. In the body of a parallel loop each thread has its own buffer; outside of it all threads share
one. A buffer that a loop of open length reads is in memory, while its twin before that loop stays in registers. A
single storage by name would be wrong for one of the two. TVM: ConvertSSA.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from search_space.ir.expr import Expr, load, transform
from search_space.ir.stmt import (
    Allocate,
    Intrinsic,
    LoopProgram,
    Operand,
    Stmt,
    Store,
    map_children,
    map_exprs,
    walk_stmt,
)


def with_own_names(program: LoopProgram) -> LoopProgram:
    """Returns the program with another name for every allocation; the first of a name keeps it."""
    names = [n.buffer.name for n in walk_stmt(program.body) if isinstance(n, Allocate)]
    taken = {b.name for b in program.params} | set(names)
    if len(set(names)) == len(names):
        return program
    met: set[str] = set()

    def go(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Allocate):
            return map_children(stmt, go)
        buffer, body = stmt.buffer, stmt.body
        if buffer.name in met:
            name = next(n for i in range(1, len(names) + 1) if (n := f"{buffer.name}.{i}") not in taken)
            taken.add(name)
            body = rename_buffers(body, {buffer.name: name})
            buffer = replace(buffer, name=name)
        met.add(stmt.buffer.name)
        return Allocate(buffer, go(body))

    return replace(program, body=go(program.body))


def rename_buffers(stmt: Stmt, names: Mapping[str, str]) -> Stmt:
    """Returns the statement with other names for the buffers that it reads and writes."""
    memo: dict[int, Expr] = {}

    def read(node: Expr) -> Expr | None:
        if node.op == "load" and node.args[0] in names:
            return load(names[node.args[0]], [transform(a, read, memo) for a in node.args[1:]], node.dtype)
        return None

    def operand(o: Operand) -> Operand:
        return replace(o, buffer=names.get(o.buffer, o.buffer))

    def rewrite(s: Stmt) -> Stmt:
        if isinstance(s, Store):
            return replace(s, buffer=names.get(s.buffer, s.buffer))
        if isinstance(s, Intrinsic):
            return replace(s, output=operand(s.output), inputs=tuple(map(operand, s.inputs)))
        return map_children(s, rewrite)

    return rewrite(map_exprs(stmt, lambda e: transform(e, read, memo)))
