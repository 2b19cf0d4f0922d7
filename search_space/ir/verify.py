"""The written grammar of loop programs, and the check that names the node which breaks it.

program  := parameters of distinct names; outputs among them; prologues, each a program
For      := a variable no loop around it has, an int64 extent, a kind of `KINDS`
Allocate := a buffer whose name no buffer around it has
Store    := a buffer in scope, one int64 index a dimension, a value of its dtype, a bool predicate or none
load     := as Store; variables are loops in scope (and decision variables, while the program has any)
concrete := extents and shapes are numbers, extents at least 0, shapes at least 1; where sizes may stay open, they may
            be expressions of the program's sizes for which this holds, but for loops that are written out
"""

from __future__ import annotations

from collections.abc import Mapping

from search_space.ir.expr import BOOL, DTYPES, INT, Expr, variables, walk
from search_space.ir.sizes import Sizes, span
from search_space.ir.stmt import (
    KINDS,
    SCOPES,
    WRITTEN_OUT,
    Allocate,
    Barrier,
    Buffer,
    For,
    Intrinsic,
    LoopProgram,
    Seq,
    Stmt,
    Store,
)

REDUCERS = (None, "sum", "max", "min", "prod")


class VerifyError(ValueError):
    """An error for a loop program that breaks its grammar: a bug in the code that built it."""


def verify(program: LoopProgram, concrete: bool = True, open_sizes: bool = False) -> None:
    """Checks a program and its prologues.

    Args:
        concrete: whether every extent must be a number and every variable a loop's.
        open_sizes: whether sizes of the program may replace numbers.

    Raises:
        VerifyError: names the node and the rule it breaks.
    """
    for prologue in program.prologues:
        verify(prologue, concrete)
    if concrete and not open_sizes and program.sizes:
        raise VerifyError(f"shapes of {program.name} must be numbers here, but got the size {', '.join(program.sizes)}")
    scope = _Scope(program.name, {}, frozenset(), concrete, program.sizes)
    for buffer in program.params:
        scope = scope.with_buffer(buffer)
    for name in program.outputs:
        _require(name in scope.buffers, f"output {name} of {program.name} must be a parameter")
    scope.stmt(program.body)


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise VerifyError(rule)


class _Scope:
    """The buffers, loops and sizes that are defined around a statement."""

    def __init__(
        self, name: str, buffers: Mapping[str, Buffer], loops: frozenset[str], concrete: bool, sizes: Sizes
    ) -> None:
        self.name, self.buffers, self.loops, self.concrete, self.sizes = name, buffers, loops, concrete, sizes

    def with_buffer(self, buffer: Buffer) -> _Scope:
        name = f"buffer {buffer.name}"
        _require(buffer.name not in self.buffers, f"{name} must not be defined twice")
        _require(buffer.dtype in DTYPES, f"{name} must have a dtype of {', '.join(DTYPES)}, but got {buffer.dtype}")
        _require(buffer.scope in SCOPES, f"{name} must be in one of {', '.join(SCOPES)}, but got {buffer.scope}")
        for extent in buffer.shape:
            self.size(extent, 1, f"shape of {name}")
        return _Scope(self.name, {**self.buffers, buffer.name: buffer}, self.loops, self.concrete, self.sizes)

    def size(self, e: Expr, least: int, what: str, is_open: bool = True) -> None:
        self.index(e, what)
        if self.concrete and is_open and variables(e) and variables(e) <= self.sizes.keys():
            _require(span(e)[0] >= least, f"{what} must be at least {least} for all sizes, but got {e}")
        elif self.concrete:
            _require(e.is_const and e.value >= least, f"{what} must be a number of at least {least}, but got {e}")

    def index(self, e: Expr, what: str) -> None:
        _require(isinstance(e, Expr) and e.dtype == INT, f"{what} must be int64, but got {e}")
        self.expr(e, what)

    def expr(self, e: Expr, what: str) -> None:
        """Checks that variables and loads of an expression are in scope."""
        if self.concrete:
            for name in variables(e) - self.loops - self.sizes.keys():
                _require(name.startswith("#"), f"{what} must mention loops in scope only, but got {name} in {e}")
        for node in walk(e):
            if node.op == "load":
                self.access(node.args[0], node.args[1:], node.dtype, f"load {node}")

    def access(self, name: str, indices: tuple[Expr, ...], dtype: str | None, what: str) -> None:
        _require(name in self.buffers, f"{what} must be of a buffer in scope, but got {name}")
        buffer = self.buffers[name]
        _require(
            len(indices) == len(buffer.shape),
            f"{what} must have {len(buffer.shape)} indices, but got {len(indices)}",
        )
        _require(dtype in (None, buffer.dtype), f"{what} must be {buffer.dtype} as {name} is, but got {dtype}")
        for index in indices:
            _require(index.dtype == INT, f"{what} must have int64 indices, but got {index}: {index.dtype}")

    def stmt(self, stmt: Stmt) -> None:
        if isinstance(stmt, Seq):
            for s in stmt.body:
                self.stmt(s)
        elif isinstance(stmt, For):
            self.loop(stmt)
        elif isinstance(stmt, Allocate):
            self.with_buffer(stmt.buffer).stmt(stmt.body)
        elif isinstance(stmt, Store):
            self.store(stmt)
        elif isinstance(stmt, Intrinsic):
            for operand in (stmt.output, *stmt.inputs):
                for indices in (operand.indices, operand.elements):
                    self.access(operand.buffer, indices, None, f"operand of {stmt.name}")
        elif not isinstance(stmt, Barrier):
            raise VerifyError(f"a statement of {self.name} must be in the grammar, but got {stmt!r}")

    def loop(self, loop: For) -> None:
        what = f"loop {loop.var}"
        _require(loop.kind in KINDS, f"{what} must be one of {', '.join(KINDS)}, but got {loop.kind}")
        _require(loop.var not in self.loops, f"{what} must not be inside a loop of the same variable")
        self.size(loop.extent, 0, f"extent of {what}", loop.kind not in WRITTEN_OUT)
        inner = _Scope(self.name, self.buffers, self.loops | {loop.var}, self.concrete, self.sizes)
        inner.stmt(loop.body)

    def store(self, store: Store) -> None:
        what = f"store to {store.buffer}[{', '.join(map(str, store.indices))}]"
        _require(store.reducer in REDUCERS, f"{what} must reduce by sum, max, min or prod, but got {store.reducer}")
        self.access(store.buffer, store.indices, store.value.dtype, what)
        for index in store.indices:
            self.expr(index, what)
        self.expr(store.value, what)
        if store.predicate is not None:
            _require(store.predicate.dtype == BOOL, f"{what} must have a bool predicate, but got {store.predicate}")
            self.expr(store.predicate, what)
