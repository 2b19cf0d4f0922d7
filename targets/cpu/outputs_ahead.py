"""Elements of an output that are made of a buffer later on, and are asked for while the buffer is computed.

The exponents of a softmax stay in cache until their sum is known, and only then is the output written: by stores that
wait for its lines, while nothing is left to compute. Asked for beside the exponents, they come meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from search_space.ir.expr import Expr, variables, walk
from search_space.ir.polynomial import canon
from search_space.ir.stmt import Allocate, For, LoopProgram, Stmt, Store, children, walk_stmt


@dataclass(frozen=True)
class Ahead:
    """Where the output's element lies that is made of one of a buffer.

    Attributes:
        output: the parameter.
        distances: by dimension, from the buffer's index to the output's.
    """

    output: str
    distances: tuple[Expr, ...]

    def element(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Indices of the output for those of the buffer."""
        return tuple(canon(i + d) for i, d in zip(indices, self.distances, strict=True))


def outputs_ahead(program: LoopProgram) -> Mapping[str, Ahead]:
    """By name of the buffers that functions are computed into, and of which one output is made, element by element."""
    return dict(_found(program.body, frozenset(), {b.name for b in program.params}))


def _found(stmt: Stmt, around: frozenset[str], params: set[str]) -> Iterator[tuple[str, Ahead]]:
    inside = around | {stmt.var} if isinstance(stmt, For) else around
    if isinstance(stmt, Allocate) and around:
        name, stores = stmt.buffer.name, [s for s in walk_stmt(stmt.body) if isinstance(s, Store)]
        made = [s for s in stores if s.buffer == name]
        readers = [s for s in stores if s.buffer in params and s.reducer is None and _loads(s, name)]
        if len(readers) == 1 and made and all(any(e.op == "call" for e in walk(s.value)) for s in made):
            (reader,) = readers
            (load, *others) = _loads(reader, name)
            if not others and len(load.args) - 1 == len(reader.indices):
                distances = tuple(canon(i - e) for i, e in zip(reader.indices, load.args[1:], strict=True))
                if all(variables(d) <= around for d in distances):
                    yield name, Ahead(reader.buffer, distances)
    for child in children(stmt):
        yield from _found(child, inside, params)


def _loads(store: Store, name: str) -> list[Expr]:
    return [e for e in walk(store.value) if e.op == "load" and e.args[0] == name]
