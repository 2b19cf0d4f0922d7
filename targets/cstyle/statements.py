"""Statements in a language like C."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from search_space.ir.expr import Expr
from search_space.ir.regroup import Regrouping
from search_space.ir.stmt import Allocate, Barrier, Buffer, For, Intrinsic, Seq, Stmt, Store
from targets.base import BuildError
from targets.buffers import elements
from targets.cstyle.spelling import Identifiers
from targets.cstyle.values import Values

COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}
"""The operation of each reducer."""
V = TypeVar("V", bound=Values)


class Text(Generic[V]):
    """One function being written; a language is a subclass that overrides methods.

    Args:
        names: gives identifiers.
        buffers: buffers by name.
        language: writes expressions.
        wide: says that indices need 64 bits.

    Attributes:
        values: writes expressions.
        ranges: extents of the loops around, by variable.
        simplify: simplifier under these ranges.
    """

    def __init__(self, names: Identifiers, buffers: Mapping[str, Buffer], language: type[V], wide: bool) -> None:
        self.names, self.buffers = names, buffers
        self.ranges: dict[str, Expr] = {}
        self.simplify = Regrouping(self.ranges)
        self.values = language(names, buffers, self.simplify, wide)
        self.lines: list[str] = []
        self.depth = 1

    def line(self, text: str) -> None:
        """Writes one line of the function."""
        self.lines.append("  " * self.depth + text)

    def open(self, text: str) -> None:
        """Writes the line that begins a block."""
        self.line(text)
        self.depth += 1

    def close(self) -> None:
        """Ends a block."""
        self.depth -= 1
        self.line("}")

    def parameter(self, buffer: Buffer, written: bool) -> str:
        """Writes the declaration of an array that the function takes."""
        kind = f"{'' if written else 'const '}{self.values.TYPES[buffer.dtype]}"
        return f"{kind}{self.values.POINTER}{self.names(buffer.name)}"

    def declaration(self, buffer: Buffer) -> str:
        """Writes the declaration of an array of the function's own."""
        return f"{self.values.TYPES[buffer.dtype]} {self.names(buffer.name)}[{elements(buffer)}];"

    def stmt(self, stmt: Stmt) -> None:
        """Writes a statement and all statements inside it.

        Raises:
            BuildError: the language has no text for it.
        """
        if isinstance(stmt, Seq):
            for part in stmt.body:
                self.stmt(part)
        elif isinstance(stmt, For):
            self.loop(stmt)
        elif isinstance(stmt, Allocate):
            self.allocate(stmt)
        elif isinstance(stmt, Store):
            self.store(stmt)
        elif isinstance(stmt, Barrier):
            self.barrier(stmt)
        else:
            assert isinstance(stmt, Intrinsic), stmt
            self.intrinsic(stmt)

    def barrier(self, stmt: Barrier) -> None:
        """Writes nothing, as one thread needs no barrier; a language with threads overrides this."""

    def intrinsic(self, call: Intrinsic) -> None:
        """Writes an instruction; refused by default."""
        raise BuildError(f"a program must be made of loops, buffers and stores, but got {call.name}")

    def allocate(self, stmt: Allocate) -> None:
        """Writes a buffer and the statements in its scope."""
        self.open("{")
        self.line(self.declaration(stmt.buffer))
        self.stmt(stmt.body)
        self.close()

    def run_over(self, loop: For) -> None:
        """Enters a loop; conclusions under another extent of its variable are forgotten."""
        if self.ranges.get(loop.var) is not loop.extent:
            self.ranges[loop.var] = loop.extent
            self.simplify.forget()
            self.values.forget()

    def loop(self, loop: For) -> None:
        """Writes a loop whose iterations run one after another."""
        self.run_over(loop)
        self.open(self.head(loop))
        self.stmt(loop.body)
        self.close()

    def head(self, loop: For, step: int = 1) -> str:
        """Writes the line that begins a counted loop."""
        name, kind = self.names(loop.var), self.values.index_type
        counted = f"++{name}" if step == 1 else f"{name} += {step}"
        return f"for ({kind} {name} = 0; {name} < {loop.extent.value}; {counted}) {{"

    def simplify_condition(self, condition: Expr) -> Expr:
        """Returns a condition in the form in which it is written."""
        return self.simplify(condition)

    def store(self, store: Store) -> None:
        """Writes a store, under its condition if it has one."""
        test = None if store.predicate is None else self.simplify_condition(store.predicate)
        if test is None or (test.is_const and test.value):
            self.assign(store)
        else:
            self.open(f"if ({self.values.condition(test)}) {{")
            self.assign(store)
            self.close()

    def assign(self, store: Store) -> None:
        """Writes a store without its condition."""
        self.line(self.assignment(store))

    def assignment(self, store: Store) -> str:
        """Returns the statement of a store."""
        target = self.values.element(self.buffers[store.buffer], store.indices)
        return f"{target} = {self.format_stored_value(store, target)};"

    def format_stored_value(self, store: Store, target: str) -> str:
        """Returns the stored value in its form in memory; a reducing store combines it with the earlier value."""
        values, dtype = self.values, self.buffers[store.buffer].dtype
        text = values.value(store.value)
        if store.reducer is not None:
            text = values.reduce(COMBINE[store.reducer], values.widen(target, dtype), text, dtype)
        return values.convert_to_stored(text, dtype)
