"""Prefetching of output elements beside the buffer from which they will be computed.

The exponents of a softmax stay in cache until their sum is known, and only then is the output written. Its stores would
wait for cache lines while nothing is left to compute. If the lines are requested beside the exponents, they arrive
meanwhile.

A norm reads its data for its sums, and again for its output. Lines of an output that caches do not hold are requested
beside the last of the sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from search_space.ir.expr import Expr, dtype_bytes, variables, walk
from search_space.ir.polynomial import canon
from search_space.ir.stmt import Allocate, For, LoopProgram, Stmt, Store, children, walk_stmt


@dataclass(frozen=True)
class Ahead:
    """The element of an output that will be computed from an element of a buffer.

    Attributes:
        output: the parameter.
        distances: distance from the buffer's index to the output's, by dimension.
    """

    output: str
    distances: tuple[Expr, ...]

    def element(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Returns the indices of the output for those of the buffer."""
        return tuple(canon(i + d) for i, d in zip(indices, self.distances, strict=True))


def outputs_ahead(program: LoopProgram) -> Mapping[str, Ahead]:
    """Finds the buffers from which one output is computed later, element by element, and describes it by buffer."""
    return dict(_find_ahead(program.body, frozenset(), {b.name for b in program.params}))


def _find_ahead(stmt: Stmt, around: frozenset[str], params: set[str]) -> Iterator[tuple[str, Ahead]]:
    inside = around | {stmt.var} if isinstance(stmt, For) else around
    if isinstance(stmt, Allocate) and around:
        name, stores = stmt.buffer.name, [s for s in walk_stmt(stmt.body) if isinstance(s, Store)]
        made = [s for s in stores if s.buffer == name]
        # Several where what is left of a row has a loop of its own.
        found = {_ahead(s, name) for s in stores if s.buffer in params and s.reducer is None and _loads(s, name)}
        if len(found) == 1 and made and all(any(e.op == "call" for e in walk(s.value)) for s in made):
            (ahead,) = found
            if ahead is not None and all(variables(d) <= around for d in ahead.distances):
                yield name, ahead
    for child in children(stmt):
        yield from _find_ahead(child, inside, params)


def _ahead(reader: Store, name: str) -> Ahead | None:
    """Describes the stored element relative to the one element of a buffer that it reads; None if it reads several."""
    load, *others = _loads(reader, name)
    if others or len(load.args) - 1 != len(reader.indices):
        return None
    return Ahead(reader.buffer, tuple(canon(i - e) for i, e in zip(reader.indices, load.args[1:], strict=True)))


def outputs_beside(program: LoopProgram, cached_bytes: int) -> Mapping[int, tuple[str, tuple[Expr, ...]]]:
    """Finds the sums that are the last to read the data of an output: output and indices read, by `id` of the sum.

    Args:
        program: program to emit.
        cached_bytes: bytes of an output that caches hold from one run to the next.
    """
    params = {b.name: b for b in program.params}
    large = {
        n for n, b in params.items() if b.size.is_const and int(b.size.value) * dtype_bytes(b.dtype) > cached_bytes
    }
    beside: dict[int, tuple[str, tuple[Expr, ...]]] = {}
    for loop in walk_stmt(program.body):
        if not isinstance(loop, For) or loop.kind != "parallel":
            continue
        stores = [s for s in walk_stmt(loop.body) if isinstance(s, Store)]
        for output in dict.fromkeys(s.buffer for s in stores if s.reducer is None and s.buffer in large):
            first = next(i for i, s in enumerate(stores) if s.buffer == output)
            made_of = {
                e.args[0] for e in walk(stores[first].value) if e.op == "load" and e.args[1:] == stores[first].indices
            }
            alike = {n for n in made_of & params.keys() if params[n].shape == params[output].shape}
            sums = [(s, e) for s in stores[:first] if s.reducer for n in sorted(alike) for e in _loads(s, n)]
            beside |= {id(s): (output, e.args[1:]) for s, e in sums if s.buffer == sums[-1][0].buffer}
    return beside


def _loads(store: Store, name: str) -> list[Expr]:
    return [e for e in walk(store.value) if e.op == "load" and e.args[0] == name]
