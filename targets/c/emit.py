"""Loop programs as functions of C99: plain loops over arrays, no calls but of libm's functions and small helpers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from textwrap import fill

from search_space.ir.expr import Expr, substitute, variables, walk
from search_space.ir.stmt import Allocate, Buffer, For, LoopProgram, Seq, Stmt, Store, children, map_exprs, walk_stmt
from targets.accesses import all_accesses, expressions
from targets.buffers import buffer_bytes, constant_shape, elements
from targets.c.helpers import LOCAL
from targets.c.names import Names
from targets.c.values import Values
from targets.cstyle.spelling import SYMBOLS
from targets.cstyle.statements import COMBINE, Text

MOST_WRITTEN = 128
"""Statements into which unrolled loops may be written out; loops of more statements stay loops."""
STACK_BYTES = 8192
"""Bytes of a function's automatic arrays; further arrays are placed in its workspace."""
COLUMNS = 120
_LONG = 16  # nodes of an expression for which a statement counts once more
_NARROW = 2**31


@dataclass(frozen=True)
class FunctionText:
    """A program as a function of C.

    Attributes:
        name: name of the function.
        arguments: its declared parameters, the workspace last where it has one.
        comment, body: the text in front of it, and between its braces.
        workspace: the declaration of the type `name`_workspace; empty where it needs none.
        workspace_bytes: upper bound of the bytes of that type.
        helpers: helpers that it calls, sorted.
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
        return break_line(f"void {self.name}({', '.join(self.arguments)})")

    @property
    def text(self) -> str:
        """The whole function."""
        return f"{self.comment}\n{self.prototype} {{\n{self.body}\n}}\n"


def break_line(text: str, indent: str = "") -> str:
    """Breaks a long line at spaces."""
    more, width = indent + "    ", max(COLUMNS, len(indent) + 60)
    return fill(
        text, width, initial_indent=indent, subsequent_indent=more, break_long_words=False, break_on_hyphens=False
    )


def emit_program(program: LoopProgram, name: str, *reserved_names: str) -> FunctionText:
    """Writes a concrete program as the function `name`: its parameters in order, then its workspace if it needs one.

    Args:
        program: concrete loop program.
        name: name of the function.
        reserved_names: other functions' names, which nothing in it has.

    Raises:
        BuildError: a statement or an expression that has no code in C.
    """
    return _Function(program, name, *reserved_names).write_function()


class _Function(Text[Values]):
    """A writer of one program."""

    def __init__(self, program: LoopProgram, name: str, *reserved_names: str) -> None:
        self.program, self.name = program, name
        names = Names(name, f"{name}_workspace", *reserved_names)
        for buffer in program.params:
            names(buffer.name)
        super().__init__(names, program.buffers, Values, _is_wide(program))
        self.automatic = 0
        self.members: dict[str, Buffer] = {}
        for node in walk_stmt(program.body):
            if isinstance(node, Allocate):
                self._allocate(node.buffer)

    def _allocate(self, buffer: Buffer) -> None:
        """Places a buffer: on the stack while there is room, else in the workspace."""
        nbytes = buffer_bytes(buffer)
        if buffer.scope == "local" and self.automatic + nbytes <= STACK_BYTES:
            self.automatic += nbytes
        elif buffer.name not in self.members:
            self.members[buffer.name] = buffer
            self.values.buffer_texts[buffer.name] = f"workspace->{self.names(buffer.name)}"

    def write_function(self) -> FunctionText:
        """Writes the whole function; parameters that no statement mentions are marked as unused."""
        self.stmt(self.program.body)
        mentioned = {access.buffer for access in all_accesses(self.program.body)}
        unused = [f"  (void){self.names(b.name)};" for b in self.program.params if b.name not in mentioned]
        nbytes = sum(-(-buffer_bytes(b) // 8) * 8 for b in self.members.values())
        body = "\n".join([*unused, *self.lines])
        helpers = tuple(sorted(self.values.used_helpers))
        return FunctionText(self.name, self._arguments(), self._comment(), body, self._workspace(), nbytes, helpers)

    def _workspace(self) -> str:
        if not self.members:
            return ""
        members = "".join(f"  {self.declaration(buffer)}\n" for buffer in self.members.values())
        return f"typedef struct {{\n{members}}} {self.name}_workspace;\n"

    def declaration(self, buffer: Buffer) -> str:
        return f"{super().declaration(buffer)} /* {describe_buffer(buffer, self.names(buffer.name))} */"

    def _arguments(self) -> tuple[str, ...]:
        found = [self.parameter(buffer, buffer.name in self.program.outputs) for buffer in self.program.params]
        return (*found, *([f"{self.name}_workspace *restrict workspace"] if self.members else []))

    def _comment(self) -> str:
        lines = [f"/* {self.name}: writes {', '.join(self.program.outputs)}."]
        for buffer in self.program.params:
            what = ", written" if buffer.name in self.program.outputs else ", constant" if buffer.constant else ""
            lines.append(f" *   {describe_buffer(buffer, self.names(buffer.name))}{what}")
        return "\n".join([*lines, " */"])

    # ------------------------------------------------------------------ statements
    def line(self, text: str) -> None:
        self.lines.append(break_line(text, "  " * self.depth))

    def loop(self, loop: For) -> None:
        extent = int(loop.extent.value)
        if extent == 1 or self._unrolls(loop, self.count_statements(loop.body)):
            for i in range(extent):
                self.stmt(_at(loop, i))
        elif extent > 1:
            self.run_over(loop)
            if loop.kind != "vectorize" or not isinstance(loop.body, Store) or not self._choice(loop, loop.body):
                super().loop(loop)

    def head(self, loop: For, step: int = 1) -> str:
        return f"{super().head(loop, step)}{'' if loop.kind == 'serial' else f' /* {loop.kind} */'}"

    def count_statements(self, stmt: Stmt) -> int:
        """Counts the statements left after unrolled loops are written out; long ones count more than once."""
        if isinstance(stmt, Store):
            return 1 + len(list(walk(stmt.value))) // _LONG
        if not isinstance(stmt, (Seq, For, Allocate)):
            return 1
        inner = sum(map(self.count_statements, children(stmt)))
        return inner * int(stmt.extent.value) if isinstance(stmt, For) and self._unrolls(stmt, inner) else inner

    def _unrolls(self, loop: For, inner: int) -> bool:
        """Tells whether a loop is written out, given the number of statements in its body."""
        return loop.kind == "unroll" and inner * int(loop.extent.value) <= MOST_WRITTEN

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
            self.depth += 1
            self.stmt(replace(loop, body=body))
            self.depth -= 1
        self.line("}")
        return True

    def allocate(self, stmt: Allocate) -> None:
        if stmt.buffer.name in self.members:
            self.stmt(stmt.body)
            return
        self.open("{")
        self.values.used_helpers.add(LOCAL)
        self.line(f"{LOCAL} {self.declaration(stmt.buffer)}")
        self.stmt(stmt.body)
        if stmt.buffer.name not in self.values.read:  # simplification may leave no read, of which compilers warn
            self.line(f"(void){self.names(stmt.buffer.name)};")
        self.close()

    def store(self, store: Store) -> None:
        test = None if store.predicate is None else self.simplify(store.predicate)
        if test is None or not test.is_const or test.value:
            super().store(store)

    def assign(self, store: Store) -> None:
        store = replace(store, value=self.simplify(store.value))
        loads = [(self.buffers[e.args[0]], e.args[1:]) for e in walk(store.value) if e.op == "load"]
        accesses = [(self.buffers[store.buffer], store.indices), *loads]
        for declared in [*self.values.bases(accesses), *self.values.shared(store.value)]:
            self.line(declared)
        super().assign(store)
        self.values.forget()

    def assignment(self, store: Store) -> str:
        buffer, values = self.buffers[store.buffer], self.values
        if store.reducer not in ("sum", "prod") or buffer.dtype != "float32":
            return super().assignment(store)
        place, value = values.element(buffer, store.indices), values.value(store.value)
        return f"{place} {SYMBOLS[COMBINE[store.reducer]]}= {value};"


def _at(loop: For, number: int) -> Stmt:
    """Substitutes the number of an iteration into the body of a loop."""
    values: Mapping[str, int] = {loop.var: number}
    memo: dict[int, Expr] = {}
    return map_exprs(loop.body, lambda e: substitute(e, values, memo))


def _is_wide(program: LoopProgram) -> bool:
    """Tells whether an index, or an integer computed like one, may need more than 32 bits."""
    buffers = [*program.params, *program.buffers.values()]
    return any(b.dtype == "int64" or elements(b) >= _NARROW for b in buffers) or any(
        (n.op == "cast" and n.dtype == "int64") or (n.op == "const" and n.dtype == "int64" and abs(n.value) >= _NARROW)
        for root in expressions(program.body)
        for n in walk(root)
    )


def describe_buffer(buffer: Buffer, name: str) -> str:
    """Formats a buffer's extents and dtype for people, and its name in the program if that is not its name in C."""
    extents = "".join(f"[{extent}]" for extent in constant_shape(buffer))
    apart = f", elements {list(buffer.pitches)} apart" if buffer.pitches is not None else ""
    return f"{name}{extents}: {buffer.dtype}{apart}{'' if name == buffer.name else f', {buffer.name}'}"
