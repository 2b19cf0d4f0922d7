"""Tiles filled by the Tensor Memory Accelerator (TMA, `cp.async.bulk.tensor`): one thread asks for a box of an array.

A loop with the pragma `bulk` fills tiles by nests of stores. Nests that copy a box of an array,

    for ...: tile[i, j] = select(y + i < rows and x + j < columns, source[y + i, x + j], 0)

become one statement. The unit fills elements outside of the array with zeros, and lays rows out in the 128-byte swizzle
that tensor cores read. It knows the array by a tensor map only, which launches pass. A pipelined loop gets an mbarrier
for each of its tiles. The thread that asks for the copies tells it how many bytes to await. All threads wait for a
phase of it, which ends when these bytes have arrived (PTX ISA, "Asynchronous copy", "mbarrier").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from search_space.ir.access import conjuncts
from search_space.ir.expr import Expr, const, dtype_bytes, substitute, var, variables
from search_space.ir.polynomial import canon
from search_space.ir.regroup import Regrouping, recombine
from search_space.ir.stmt import THREAD_TAGS, Allocate, Buffer, For, Intrinsic, Operand, Seq, Stmt, Store, walk_stmt
from search_space.lower.blocks import BULK
from targets.accesses import all_accesses
from targets.cuda.barriers import evaluate_grid
from targets.cuda.program import TensorMap
from targets.cuda.warpgroups import LINE_BYTES, LINES, PRODUCTS

BEGIN, EXPECT, COPY, ARRIVE = "bulk_begin", "bulk_expect", "bulk_copy", "bulk_arrive"
"""Mbarriers begin; `bulk_expect:n` awaits n bytes; a box is asked for; all threads wait until they have arrived."""
FENCES = ("bulk_fence_begin", "bulk_fence_proxy")
"""Fences that make new mbarriers visible to the TMA unit: as initialised, and through memory."""
CONVERGE = "bulk_converge"
"""The threads of each warp, which come from a wait or a branch of one of them at different times, go on together."""
_NAMES = frozenset((BEGIN, EXPECT, COPY, ARRIVE, CONVERGE, *FENCES))
UNIT_BYTES = 16
"""Bytes of which the pitch of an array's rows must be a multiple."""
MOST_ROWS, MOST_DIMENSIONS = 256, 5
"""Of a box; of an array."""
_MOST_POINTS = 1 << 23  # points to evaluate; beyond, a nest is assumed to copy no box


def is_bulk(stmt: Stmt) -> bool:
    """Tells whether a statement concerns copies by the unit."""
    return isinstance(stmt, Intrinsic) and stmt.name.partition(":")[0] in _NAMES


def is_copy(stmt: Stmt) -> bool:
    return isinstance(stmt, Intrinsic) and stmt.name == COPY


def is_unawaited_copy(stmt: Stmt) -> bool:
    """Tells whether a statement is a copy that no mbarrier awaits yet."""
    return isinstance(stmt, Intrinsic) and stmt.name == COPY and len(stmt.inputs) == 1


def as_rows(array: Buffer) -> Buffer:
    """Merges all dimensions of an array but the last."""
    *outer, last = (int(e.value) for e in array.shape)
    pitches = None if array.pitches is None else array.pitches[-2:]
    return replace(array, shape=(const(prod(outer)), const(last)), pitches=pitches)


def make_tensor_map(copy: Intrinsic, tile: Buffer, source: Buffer) -> TensorMap:
    """Returns the map of a copy's source, whose boxes are rows of one block of a swizzled tile."""
    if len(copy.inputs[0].indices) < len(source.shape):
        source = as_rows(source)
    rows, columns = (int(e.value) for e in tile.shape[-2:])
    extents = {"#0": rows, "#1": columns}
    box = [prod(extents.get(name, 1) for name in variables(e)) for e in copy.inputs[0].elements]
    size = dtype_bytes(source.dtype)
    return TensorMap(
        source.name,
        source.dtype,
        tuple(int(e.value) for e in source.shape),
        tuple(int(s.value) * size for s in source.strides[:-1]),
        tuple(box),
    )


def tensor_maps(body: Stmt, params: Sequence[Buffer]) -> tuple[TensorMap, ...]:
    """Lists the maps that a kernel's copies need, each once."""
    known = {b.name: b for b in params}
    known |= {n.buffer.name: n.buffer for n in walk_stmt(body) if isinstance(n, Allocate)}
    copies = [n for n in walk_stmt(body) if isinstance(n, Intrinsic) and n.name == COPY]
    return tuple(dict.fromkeys(make_tensor_map(c, known[c.output.buffer], known[c.inputs[0].buffer]) for c in copies))


# ---------------------------------------------------------------------- boxes
def bulk_copies(stmt: Stmt, arrays: Mapping[str, Buffer]) -> Stmt:
    """Lets the TMA unit fill tiles of tensor cores in the loops with the pragma `bulk`.

    A nest that copies no box, or from an array whose rows the unit cannot address, stays as it is.

    Args:
        arrays: arrays in device memory, by name.
    """
    if not any(isinstance(n, For) and BULK in dict(n.pragmas) for n in walk_stmt(stmt)):
        return stmt
    tiles = {o.buffer for n in walk_stmt(stmt) if isinstance(n, Intrinsic) and n.name in PRODUCTS for o in n.inputs}
    written = {a.buffer for a in all_accesses(stmt) if a.write}
    readable = {name: b for name, b in arrays.items() if name not in written and _addressable(b)}
    return _Boxes(tiles, readable).stmt(stmt, False, True)


def _addressable(array: Buffer) -> bool:
    """Tells whether the TMA unit can read an array."""
    size = dtype_bytes(array.dtype)
    *outer, last = (int(s.value) for s in array.strides)
    # Two bytes: warpgroups multiply tiles of 16-bit floats alone.
    fitting = size == 2 and 2 <= len(array.shape) <= MOST_DIMENSIONS and last == 1
    return fitting and all(s * size % UNIT_BYTES == 0 and s > 0 for s in outer)


class _Boxes:
    """Finds nests that copy boxes.

    Args:
        tiles: buffers that tensor cores read.
        arrays: arrays that the unit can read, by name.
    """

    def __init__(self, tiles: set[str], arrays: Mapping[str, Buffer]) -> None:
        self.tiles, self.arrays = tiles, arrays
        self.buffers: dict[str, Buffer] = {}
        self.ranges: dict[str, Expr] = {}
        self.simplify = Regrouping(self.ranges)

    def stmt(self, stmt: Stmt, marked: bool, once: bool) -> Stmt:
        """Rewrites the nests of a statement.

        Args: marked: whether it is in a marked loop; once: whether it is run once by each block.
        """
        if isinstance(stmt, Seq):
            return Seq(tuple(self.stmt(s, marked, once) for s in stmt.body))
        if isinstance(stmt, Allocate):
            self.buffers[stmt.buffer.name] = stmt.buffer
            return replace(stmt, body=self.stmt(stmt.body, marked, once))
        if not isinstance(stmt, For):
            return stmt
        found = self.copy(stmt) if marked else None
        if found is not None:
            return found
        self.enter(stmt)
        # Only in a loop that a block runs once: mbarriers begin in front of it, and their phases count its steps.
        marks = BULK in dict(stmt.pragmas)
        kept = tuple((k, v) for k, v in stmt.pragmas if k != BULK)
        again = once and (stmt.kind in THREAD_TAGS or stmt.extent.value == 1)
        return replace(stmt, pragmas=kept, body=self.stmt(stmt.body, marks and once, again))

    def enter(self, loop: For) -> None:
        self.ranges[loop.var] = loop.extent
        self.simplify.forget()

    def copy(self, nest: For) -> Intrinsic | None:
        """Turns a nest into the copy of a box; None if it is something else."""
        inner: dict[str, int] = {}
        body: Stmt = nest
        while isinstance(body, For):
            self.enter(body)
            inner[body.var] = int(body.extent.value)
            body = body.body
        if not isinstance(body, Store) or body.reducer is not None or body.buffer not in self.tiles:
            return None
        tile, value, tests = self.buffers[body.buffer], body.value, []
        while value.op == "select" and value.args[2].op == "const" and value.args[2].value == 0:
            tests.append(value.args[0])
            value = value.args[1]
        if value.op != "load" or value.args[0] not in self.arrays or not _fits_boxes(tile):
            return None
        source, indices = self.arrays[value.args[0]], value.args[1:]
        first = self.begin(body.indices[-2:], indices, inner)
        if first is None and _in_rows(source):
            source, indices = as_rows(source), self.in_rows(source, indices)
            first = self.begin(body.indices[-2:], indices, inner)
        if first is None or not _covers(body, tile, inner):
            return None
        # The unit leaves out what lies outside of the array and tests nothing else: every condition must say just that.
        if not all(self.outside(c, source, indices) for test in tests for c in conjuncts(test)):
            return None
        base, (row, column) = first
        numbers = {row: var("#0"), column: var("#1")}
        zero = tuple(const(0) for _ in tile.shape)
        return Intrinsic(
            COPY,
            Operand(tile.name, zero, (*zero[:-2], var("#0"), var("#1"))),
            (Operand(source.name, base, tuple(e + numbers[d] if d in numbers else e for d, e in enumerate(base))),),
            reset=True,
        )

    def in_rows(self, source: Buffer, indices: Sequence[Expr]) -> tuple[Expr, Expr]:
        """Returns the indices in an array whose dimensions but the last are merged; indices of a fused loop are
        recombined.
        """
        row, scale = const(0), 1
        for index, extent in zip(reversed(indices[:-1]), reversed(source.shape[:-1]), strict=True):
            row, scale = row + index * scale, scale * int(extent.value)
        return recombine(self.simplify(row), self.simplify), indices[-1]

    def begin(
        self, target: Sequence[Expr], indices: Sequence[Expr], inner: Mapping[str, int]
    ) -> tuple[tuple[Expr, ...], tuple[int, int]] | None:
        """Returns the start of a box in its array, and the array's dimensions along its rows and columns."""
        base: list[Expr] = []
        sides: dict[int, int] = {}
        for d, index in enumerate(indices):
            start = self.simplify(index)
            if variables(start) & inner.keys():
                side = 1 if d == len(indices) - 1 else 0
                found = self.difference(start, self.simplify(target[side]), inner)
                if side in sides or found is None:
                    return None
                start, sides[side] = found, d
            base.append(start)
        return (tuple(base), (sides[0], sides[1])) if len(sides) == 2 else None

    def difference(self, index: Expr, target: Expr, inner: Mapping[str, int]) -> Expr | None:
        """Returns the distance of two indices if none of the loops `inner` changes it; None otherwise."""
        start = self.simplify(canon(index - target))
        if not variables(start) & inner.keys():
            return start
        # Simplification does not see every equality; trying all points does.
        zeros = {name: const(0) for name in inner}
        start = self.simplify(substitute(index, zeros) - substitute(target, zeros))
        at = self.points(variables(index) | variables(target))
        try:
            same = at is not None and np.all(
                evaluate_grid(index, at) == evaluate_grid(target, at) + evaluate_grid(start, at)
            )
        except KeyError:
            return None
        return start if same else None

    def points(self, names: frozenset[str]) -> dict[str, NDArray[np.int64]] | None:
        """Returns loop variables for all their iterations at once; None if these are too many."""
        extents = {name: int(self.ranges[name].value) for name in sorted(names)}
        if prod(extents.values()) > _MOST_POINTS:
            return None
        return dict(zip(extents, np.indices(tuple(extents.values()), sparse=True), strict=True))

    def outside(self, test: Expr, source: Buffer, indices: Sequence[Expr]) -> bool:
        """Tells whether a condition holds for all positions within the array along one of its dimensions."""
        for extent, index in zip(source.shape, indices, strict=True):
            at = self.points(variables(test) | variables(index)) if variables(index) & variables(test) else None
            if at is None:
                continue
            try:
                holds, place = evaluate_grid(test, at), evaluate_grid(index, at)
            except KeyError:
                continue
            if not np.any((place >= 0) & (place < int(extent.value)) & (holds == 0)):
                return True
        return False


def _in_rows(array: Buffer) -> bool:
    """Tells whether an array's rows follow each other at one distance."""
    strides = [int(s.value) for s in array.strides]
    extents = [int(e.value) for e in array.shape]
    return len(extents) > 2 and all(strides[d] == strides[d + 1] * extents[d + 1] for d in range(len(extents) - 2))


def _fits_boxes(tile: Buffer) -> bool:
    """Tells whether a tile is blocks of rows that a box can fill."""
    *lead, rows, columns = (int(e.value) for e in tile.shape)
    line = LINE_BYTES // dtype_bytes(tile.dtype)
    return prod(lead) == 1 and tile.pitches is None and columns % line == 0 and rows % LINES == 0 and rows <= MOST_ROWS


def _covers(store: Store, tile: Buffer, inner: Mapping[str, int]) -> bool:
    """Tells whether a store sets every element of its tile, whatever the loops around it are at."""
    at = dict(zip(inner, np.indices(tuple(inner.values()), sparse=True), strict=True))
    rows, columns = (int(e.value) for e in tile.shape[-2:])
    try:
        row, column = (evaluate_grid(i, at) for i in store.indices[-2:])
        done = np.ones(1, bool) if store.predicate is None else evaluate_grid(store.predicate, at).astype(bool)
    except KeyError:
        return False
    place, chosen = np.broadcast_arrays(row * columns + column, done)
    return bool(np.unique(place[chosen]).size == rows * columns)


# ---------------------------------------------------------------------- phases
@dataclass(frozen=True)
class Ring:
    """The mbarriers of a loop's tiles, one for each.

    Attributes:
        buffer: its second index, which takes no memory, is the parity of the phase that a statement is about.
        tiles: filled by the unit.
    """

    buffer: Buffer
    tiles: tuple[Buffer, ...]

    @classmethod
    def of(cls, loop: str, stages: int, tiles: Sequence[Buffer]) -> Ring:
        return cls(
            Buffer(f"{loop}.arrived", (const(stages), const(2)), "int64", "shared", pitches=(1, 0)), tuple(tiles)
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all tiles of a step."""
        return sum(prod(int(e.value) for e in t.shape) * dtype_bytes(t.dtype) for t in self.tiles)

    def slot(self, step: Expr) -> Operand:
        """Returns the mbarrier of a step, and its phase."""
        stages = self.buffer.shape[0]
        indices = (step % stages, step // stages % 2)
        return Operand(self.buffer.name, indices, indices)

    def begin(self) -> list[Stmt]:
        return [Intrinsic(name, self.slot(const(0)), ()) for name in (BEGIN, *FENCES)]

    def start_copies(self, copies: Sequence[Intrinsic], step: Expr) -> list[Stmt]:
        """Starts the copies of a step's tiles; their bytes are announced before."""
        slot = self.slot(step)
        awaited = Intrinsic(f"{EXPECT}:{self.nbytes}", slot, (), predicate=copies[0].predicate)
        return [awaited, *(replace(c, inputs=(*c.inputs, slot)) for c in copies)]

    def await_copies(self, step: Expr) -> list[Stmt]:
        return [Intrinsic(name, self.slot(step), ()) for name in (ARRIVE, CONVERGE)]


__all__ = ["Ring", "TensorMap", "bulk_copies", "is_bulk", "is_copy", "tensor_maps", "is_unawaited_copy"]
