"""Loop programs as functions of C99: plain loops over arrays, no calls but of libm's functions and small helpers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from textwrap import fill
from typing import Any

from search_space.ir.expr import FLOATS, Expr, dtype_bytes, substitute, variables, walk
from search_space.ir.regroup import Regrouping
from search_space.ir.stmt import Allocate, Barrier, Buffer, For, LoopProgram, Seq, Stmt, Store, map_exprs, walk_stmt
from targets.arrays import C_TYPE
from targets.base import BuildError
from targets.c.helpers import LOCAL, PREFIX
from targets.c.names import Names
from targets.c.values import Values

MOST_WRITTEN = 128
"""Statements that unrolled loops are written out to; those of more stay loops."""
STACK_BYTES = 8192
"""Of a function's arrays that are automatic; others lie in its workspace."""
COLUMNS = 120
_LONG = 16  # nodes of an expression for which a statement counts once more
_NARROW = 2**31


@dataclass(frozen=True)
class Emitted:
    """A program as a function of C.

    Attributes:
        name: of the function.
        arguments: its declared parameters, the workspace last where it has one.
        comment, body: the text in front of it, and between its braces.
        workspace: the declaration of the type `name`_workspace; empty where it needs none.
        workspace_bytes: of that type, at most.
        helpers: that it calls, sorted.
    """

    name: str
    arguments: tuple[str, ...]
    comment: str
    body: str
    workspace: str
    workspace_bytes: int
    helpers: tuple[str, ...]

    @property
    def prototype(self) -> str:
        """The function's head."""
        return wrapped(f"void {self.name}({', '.join(self.arguments)})")

    @property
    def text(self) -> str:
        """The whole function."""
        return f"{self.comment}\n{self.prototype} {{\n{self.body}\n}}\n"


def shape_of(buffer: Buffer) -> tuple[int, ...]:
    """The numbers of a concrete shape."""
    return tuple(int(extent.value) for extent in buffer.shape)


def room_of(buffer: Buffer) -> int:
    """Elements from a buffer's first one to behind its last one."""
    return 1 + sum((n - 1) * int(s.value) for n, s in zip(shape_of(buffer), buffer.strides, strict=True))


def wrapped(text: str, indent: str = "") -> str:
    """A line, broken at spaces where it is long."""
    more, width = indent + "    ", max(COLUMNS, len(indent) + 60)
    return fill(
        text, width, initial_indent=indent, subsequent_indent=more, break_long_words=False, break_on_hyphens=False
    )


def emit_program(program: LoopProgram, name: str, *taken: str) -> Emitted:
    """The function `name` of a concrete program: its parameters in order, then its workspace where it needs one.

    Args:
        program: what to write.
        name: of the function.
        taken: other functions' names, which nothing in it has.

    Raises:
        BuildError: a statement or an expression that has no code in C.
    """
    return _Function(program, name, *taken).emitted()


class _Function:
    """Writes one program."""

    def __init__(self, program: LoopProgram, name: str, *taken: str) -> None:
        self.program, self.name = program, name
        self.ranges: dict[str, Expr] = {}
        self.simplify = Regrouping(self.ranges)
        names = Names(name, f"{name}_workspace", *taken)
        for buffer in program.params:
            names(buffer.name)
        self.names, self.values = names, Values(names, program.buffers, self.simplify, _is_wide(program))
        self.lines: list[str] = []
        self.depth = 1
        self.automatic = 0
        self.members: dict[str, Buffer] = {}
        for node in walk_stmt(program.body):
            if isinstance(node, Allocate):
                self._place(node.buffer)

    def _place(self, buffer: Buffer) -> None:
        """Decides where a buffer lies: on the stack while there is room, else in the workspace."""
        nbytes = prod(shape_of(buffer)) * dtype_bytes(buffer.dtype)
        if buffer.scope == "local" and self.automatic + nbytes <= STACK_BYTES:
            self.automatic += nbytes
        elif buffer.name not in self.members:
            self.members[buffer.name] = buffer
            self.values.places[buffer.name] = f"workspace->{self.names(buffer.name)}"

    def emitted(self) -> Emitted:
        """The whole function; what no statement mentions is said to be unused."""
        self.stmt(self.program.body)
        mentioned = _mentioned(self.program.body)
        unused = [f"  (void){self.names(b.name)};" for b in self.program.params if b.name not in mentioned]
        nbytes = sum(-(-prod(shape_of(b)) * dtype_bytes(b.dtype) // 8) * 8 for b in self.members.values())
        body = "\n".join([*unused, *self.lines])
        helpers = tuple(sorted(self.values.used))
        return Emitted(self.name, self._arguments(), self._comment(), body, self._workspace(), nbytes, helpers)

    def _workspace(self) -> str:
        if not self.members:
            return ""
        members = "".join(f"  {self._declared(buffer)}\n" for buffer in self.members.values())
        return f"typedef struct {{\n{members}}} {self.name}_workspace;\n"

    def _declared(self, buffer: Buffer) -> str:
        name = self.names(buffer.name)
        return f"{C_TYPE[buffer.dtype]} {name}[{prod(shape_of(buffer))}]; /* {shown(buffer, name)} */"

    def _arguments(self) -> tuple[str, ...]:
        found = []
        for buffer in self.program.params:
            kind = C_TYPE[buffer.dtype] if buffer.name in self.program.outputs else f"const {C_TYPE[buffer.dtype]}"
            found.append(f"{kind} *restrict {self.names(buffer.name)}")
        return (*found, *([f"{self.name}_workspace *restrict workspace"] if self.members else []))

    def _comment(self) -> str:
        lines = [f"/* {self.name}: writes {', '.join(self.program.outputs)}."]
        for buffer in self.program.params:
            what = ", written" if buffer.name in self.program.outputs else ", constant" if buffer.constant else ""
            lines.append(f" *   {shown(buffer, self.names(buffer.name))}{what}")
        return "\n".join([*lines, " */"])

    # ------------------------------------------------------------------ statements
    def line(self, text: str) -> None:
        self.lines.append(wrapped(text, "  " * self.depth))

    def stmt(self, stmt: Stmt) -> None:
        write = _EMIT.get(type(stmt))
        if write is None:
            what = getattr(stmt, "name", type(stmt).__name__)
            raise BuildError(f"a program must be made of loops, buffers and stores, but got {what}")
        write(self, stmt)

    def seq(self, stmt: Seq) -> None:
        for part in stmt.body:
            self.stmt(part)

    def barrier(self, stmt: Barrier) -> None:
        """One thread waits for nobody."""

    def loop(self, loop: For) -> None:
        extent = int(loop.extent.value)
        if extent == 1 or self._unrolls(loop, self.written(loop.body)):
            for i in range(extent):
                self.stmt(_at(loop, i))
        elif extent > 1:
            self._plain(loop, extent)

    def written(self, stmt: Stmt) -> int:
        """Statements that are left when unrolled loops are written out, long ones counted more than once."""
        if isinstance(stmt, Seq):
            return sum(self.written(part) for part in stmt.body)
        if isinstance(stmt, Allocate):
            return self.written(stmt.body)
        if isinstance(stmt, Store):
            return 1 + len(list(walk(stmt.value))) // _LONG
        if not isinstance(stmt, For):
            return 1
        inner = self.written(stmt.body)
        return inner * int(stmt.extent.value) if self._unrolls(stmt, inner) else inner

    def _unrolls(self, loop: For, inner: int) -> bool:
        """Whether a loop is written out, whose body comes to so many statements."""
        return loop.kind == "unroll" and inner * int(loop.extent.value) <= MOST_WRITTEN

    def _plain(self, loop: For, extent: int) -> None:
        if self.ranges.get(loop.var) is not loop.extent:
            self.ranges[loop.var] = loop.extent
            self.simplify.forget()
        if loop.kind == "vectorize" and isinstance(loop.body, Store) and self._choice(loop, loop.body):
            return
        name, kind = self.names(loop.var), self.values.index_type
        said = "" if loop.kind == "serial" else f" /* {loop.kind} */"
        self.line(f"for ({kind} {name} = 0; {name} < {extent}; ++{name}) {{{said}")
        self.inside(loop.body)
        self.line("}")

    def _choice(self, loop: For, store: Store) -> bool:
        """Writes a condition that is the same for all of a vector around the loop, if there is one."""
        if store.predicate is not None:
            test, kinds = self.simplify(store.predicate), [replace(store, predicate=None)]
        else:
            value = self.simplify(store.value)
            if value.op != "select":
                return False
            test, *chosen = value.args
            kinds = [replace(store, value=one) for one in chosen]
        if test.is_const or loop.var in variables(test):
            return False
        for said, body in zip((f"if ({self.values.condition(test)}) {{", "} else {"), kinds, strict=False):
            self.line(said)
            self.inside(replace(loop, body=body))
        self.line("}")
        return True

    def inside(self, stmt: Stmt) -> None:
        """A statement, one step further to the right."""
        self.depth += 1
        self.stmt(stmt)
        self.depth -= 1

    def allocate(self, stmt: Allocate) -> None:
        if stmt.buffer.name in self.members:
            self.stmt(stmt.body)
            return
        self.line("{")
        self.depth += 1
        self.values.used.add(LOCAL)
        self.line(f"{LOCAL} {self._declared(stmt.buffer)}")
        self.stmt(stmt.body)
        if stmt.buffer.name not in self.values.read:  # simplification may leave no read, of which compilers warn
            self.line(f"(void){self.names(stmt.buffer.name)};")
        self.depth -= 1
        self.line("}")

    def store(self, stmt: Store) -> None:
        test = None if stmt.predicate is None else self.simplify(stmt.predicate)
        if test is not None and test.is_const:
            if not test.value:
                return
            test = None
        if test is not None:
            self.line(f"if ({self.values.condition(test)}) {{")
            self.depth += 1
        value = self.simplify(stmt.value)
        for declared in [*self.values.bases(self._accesses(stmt, value)), *self.values.shared(value)]:
            self.line(declared)
        self.line(self._assignment(stmt, value))
        self.values.forget()
        if test is not None:
            self.depth -= 1
            self.line("}")

    def _accesses(self, stmt: Store, value: Expr) -> list[tuple[Buffer, tuple[Expr, ...]]]:
        """Elements that a store writes and reads."""
        loads = [(self.program.buffers[e.args[0]], e.args[1:]) for e in walk(value) if e.op == "load"]
        return [(self.program.buffers[stmt.buffer], stmt.indices), *loads]

    def _assignment(self, stmt: Store, stored: Expr) -> str:
        buffer, values = self.program.buffers[stmt.buffer], self.values
        place, value = values.element(buffer, stmt.indices), values.value(stored)
        if stmt.reducer is None:
            return f"{place} = {values.stored(value, buffer.dtype)};"
        op = {"sum": "add", "prod": "mul"}.get(stmt.reducer, stmt.reducer)
        if buffer.dtype == "float32" and op in ("add", "mul"):
            return f"{place} {'+' if op == 'add' else '*'}= {value};"
        old = values.widened(place, buffer.dtype)
        return f"{place} = {values.stored(_together(values, op, old, value, buffer.dtype), buffer.dtype)};"


def _together(values: Values, op: str, a: str, b: str, dtype: str) -> str:
    """A binary operation whose result is rounded where it is stored."""
    if dtype in FLOATS:
        # Of a maximum what is there already is the second: the first is looked at for NaN, which need not wait.
        a, b = (b, a) if op in ("min", "max") else (a, b)
        return values.combine(op, a, b, "float32")
    if dtype in PREFIX:
        return values.combine(op, a, b, dtype)
    raise BuildError(f"a reduction must be of numbers, but got dtype={dtype}")


def _at(loop: For, number: int) -> Stmt:
    """The body of a loop at one of its iterations."""
    values: Mapping[str, int] = {loop.var: number}
    memo: dict[int, Expr] = {}
    return map_exprs(loop.body, lambda e: substitute(e, values, memo))


def _mentioned(stmt: Stmt) -> set[str]:
    """Names of buffers that are read or written."""
    found = set()
    for node in walk_stmt(stmt):
        if isinstance(node, Store):
            found.add(node.buffer)
            exprs = [*node.indices, node.value, *([] if node.predicate is None else [node.predicate])]
            found |= {e.args[0] for root in exprs for e in walk(root) if e.op == "load"}
    return found


def _is_wide(program: LoopProgram) -> bool:
    """Whether an index, or an integer that is computed as one, may need more than 32 bits."""
    buffers = [*program.params, *program.buffers.values()]
    return any(b.dtype == "int64" or room_of(b) >= _NARROW for b in buffers) or _casts(program.body)


def _casts(stmt: Stmt) -> bool:
    roots: list[Expr] = []

    def note(e: Expr) -> Expr:
        roots.append(e)
        return e

    map_exprs(stmt, note)
    return any(
        (n.op == "cast" and n.dtype == "int64") or (n.op == "const" and n.dtype == "int64" and abs(n.value) >= _NARROW)
        for root in roots
        for n in walk(root)
    )


def shown(buffer: Buffer, name: str) -> str:
    """A buffer's extents and dtype for people, and what it is called in the program where that is not its name in C."""
    extents = "".join(f"[{extent}]" for extent in shape_of(buffer))
    apart = f", elements {list(buffer.pitches)} apart" if buffer.pitches is not None else ""
    return f"{name}{extents}: {buffer.dtype}{apart}{'' if name == buffer.name else f', {buffer.name}'}"


_EMIT: dict[type[Stmt], Callable[[_Function, Any], None]] = {
    Seq: _Function.seq,
    For: _Function.loop,
    Allocate: _Function.allocate,
    Store: _Function.store,
    Barrier: _Function.barrier,
}
