"""Loop programs as text."""

from __future__ import annotations

from search_space.ir.expr import Expr
from search_space.ir.render import SharedText, is_large
from search_space.ir.stmt import Allocate, Barrier, Buffer, For, Intrinsic, LoopProgram, Operand, Seq, Stmt, Store

_LARGE = 1000
"""Nodes as trees from which a statement is too large to be written as a tree."""
_LONG = 300
"""Characters from which a statement is written with names for its shared subterms and tables, where that is shorter."""
_SHORTER = 0.7
"""Greatest length of a text with names for subterms, as a share of the plain text's: else the plain text is used."""
_UPDATE = {"sum": "+=", "prod": "*=", "max": "max=", "min": "min="}


def print_program(program: LoopProgram) -> str:
    """Prints the program as indented pseudo-code, prologues first."""
    parts = [print_program(p) for p in program.prologues]
    head = f"{program.name}({', '.join(_buffer(b) for b in program.params)}) -> {', '.join(program.outputs)}"
    sizes = [f"  size {name} from {low} to {high}" for name, (low, high) in program.sizes.items()]
    limits = [f"  require {c.left} <= {c.right}  # {c.name}" for c in program.constraints]
    parts.append("\n".join([head, *sizes, *limits, *_stmt(program.body, "  ")]))
    return "\n\n".join(parts)


def _buffer(buffer: Buffer) -> str:
    note = "const " if buffer.constant else ""
    return f"{buffer.name}: {note}{buffer.dtype}[{', '.join(map(str, buffer.shape))}]"


def _stmt(stmt: Stmt, indent: str) -> list[str]:
    if isinstance(stmt, Seq):
        return [line for s in stmt.body for line in _stmt(s, indent)]
    if isinstance(stmt, For):
        kind = "for" if stmt.kind == "serial" else f"{stmt.kind} for"
        hints = "".join(f" [{key}={value}]" for key, value in stmt.pragmas)
        return [f"{indent}{kind} {stmt.var} in {stmt.extent}{hints}:", *_stmt(stmt.body, indent + "  ")]
    if isinstance(stmt, Allocate):
        swizzled = ", swizzled" if stmt.buffer.swizzled else ""
        return [f"{indent}alloc {_buffer(stmt.buffer)} in {stmt.buffer.scope}{swizzled}", *_stmt(stmt.body, indent)]
    if isinstance(stmt, Store):
        return [f"{indent}{line}" for line in _store(stmt)]
    if isinstance(stmt, Barrier):
        hints = "" if stmt.pending is None else f" [pending={stmt.pending}]"
        return [f"{indent}barrier{hints}{' [proxy]' if stmt.proxy else ''}"]
    assert isinstance(stmt, Intrinsic), stmt
    operands = ", ".join(_operand(o) for o in (stmt.output, *stmt.inputs))
    where = "" if stmt.predicate is None else f"  if {stmt.predicate}"
    return [f"{indent}{stmt.name}({operands}){where}"]


def _store(stmt: Store) -> list[str]:
    """Prints a store; a long one comes after definitions of its shared subterms."""
    update = _UPDATE[stmt.reducer] if stmt.reducer else "="
    roots = [*stmt.indices, stmt.value, *([] if stmt.predicate is None else [stmt.predicate])]
    large = is_large(roots, _LARGE)
    if not large:
        guard = "" if stmt.predicate is None else f"  if {stmt.predicate}"
        line = f"{stmt.buffer}[{_list(stmt.indices)}] {update} {stmt.value}{guard}"
        if len(line) < _LONG:
            return [line]
    shared = SharedText(roots)
    guard = "" if stmt.predicate is None else f"  if {shared.text(stmt.predicate)}"
    head = f"{stmt.buffer}[{', '.join(map(shared.text, stmt.indices))}] {update}"
    lines = [*shared.definitions, *shared.lines(head, stmt.value, guard)]
    if large or shared.has_tables or sum(map(len, lines)) <= _SHORTER * len(line):
        return lines
    return [line]


def _operand(operand: Operand) -> str:
    return f"&{operand.buffer}[{_list(operand.indices)}]"


def _list(exprs: tuple[Expr, ...]) -> str:
    return ", ".join(map(str, exprs))
