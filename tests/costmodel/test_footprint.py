"""Footprints against the addresses that a nest really touches."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.features.nest import Nest
from costmodel.features.statement import statements
from search_space.hardware import LINE
from search_space.ir.columns import Columns
from search_space.ir.expr import Expr, const, load, maximum, minimum, select, substitute, var
from search_space.ir.stmt import Buffer, LoopProgram, Store
from search_space.ir.tape import Tape
from tests.costmodel import programs

Loops = tuple[tuple[str, int, str], ...]


def describe_access(indices: tuple[Expr, ...], source: Buffer, loops: Loops) -> tuple[list[float], list[float]]:
    """(elements, bytes in whole lines) of the source, by level."""
    (statement,) = statements(programs.copy(indices, source, *loops))
    nest = Nest(statement, Columns(Tape(), (), loops=True))
    access = next(a for a in statement.inputs if a.buffer is source)
    found = ([v.number for v in part] for part in (nest.elements(access), nest.footprint(access)))
    return tuple(found)  # type: ignore[return-value]


def count_touches(indices: tuple[Expr, ...], source: Buffer, loops: Loops, level: int) -> tuple[int, int]:
    """(elements, bytes in whole lines) touched while the loops from `level` run; the most that there is."""
    shape = [int(s.value) for s in source.shape]
    most, lines = 0, 0
    for outer in product(*(range(e) for _, e, _ in loops[:level])):
        flat = set()
        for inner in product(*(range(e) for _, e, _ in loops[level:])):
            values = {v: i for (v, _, _), i in zip(loops, (*outer, *inner), strict=True)}
            at = tuple(int(substitute(i, values).value) for i in indices)
            flat.add(int(np.ravel_multi_index(at, shape)))
        most, lines = max(most, len(flat)), max(lines, len({f * 4 // LINE for f in flat}) * LINE)
    return most, lines


def serial(**extents: int) -> Loops:
    return tuple((name, extent, "serial") for name, extent in extents.items())


i, j, r, p = (var(v) for v in "ijrp")
CASES = {
    "window": ((i + r, j), programs.buffer("x", 10, 32), serial(i=8, r=3, j=32)),
    "strided": ((i * 2, j), programs.buffer("x", 16, 16), serial(i=8, j=16)),
    "column": ((i, const(0)), programs.buffer("x", 6, 64), serial(i=6)),
    "small rows": ((i, j), programs.buffer("x", 16, 3), serial(i=16, j=3)),
    "clamped": ((minimum(i * 4, 6) + j, r), programs.buffer("x", 10, 16), serial(i=3, j=4, r=16)),
    "fused": ((p // 4, p % 4, j), programs.buffer("x", 3, 4, 16), serial(p=12, j=16)),
    "fused and reordered": ((p // 4 % 3, j, p % 4), programs.buffer("x", 3, 16, 4), serial(p=12, j=16)),
    "selected": ((select(i < 2, const(0), i), j), programs.buffer("x", 8, 16), serial(i=8, j=16)),
}


@pytest.mark.parametrize("case", [c for c in CASES if c not in ("clamped", "selected")])
def test_elements_are_exact_where_a_nest_is_dense(case: str) -> None:
    indices, source, loops = CASES[case]
    elements, _ = describe_access(indices, source, loops)
    assert elements == [count_touches(indices, source, loops, level)[0] for level in range(len(loops) + 1)]


@pytest.mark.parametrize("case", CASES)
def test_a_footprint_holds_what_is_touched_and_little_more(case: str) -> None:
    indices, source, loops = CASES[case]
    elements, footprint = describe_access(indices, source, loops)
    for level in range(len(loops) + 1):
        count, lines = count_touches(indices, source, loops, level)
        assert elements[level] >= count
        assert lines - LINE <= footprint[level] <= 2 * lines + LINE  # a row may straddle a line more
    assert footprint[0] <= -(-int(source.size.value) * 4 // LINE) * LINE


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=3, max_size=3), st.lists(st.integers(0, 4), min_size=6, max_size=6))
def test_random_affine_accesses(extents: list[int], factors: list[int]) -> None:
    names = "ijr"
    indices = tuple(
        sum((var(n) * f for n, f in zip(names, factors[3 * d :], strict=False)), const(0)) for d in range(2)
    )
    reach = [sum(f * (e - 1) for f, e in zip(factors[3 * d :], extents, strict=False)) + 1 for d in range(2)]
    source = programs.buffer("x", *reach)
    loops = serial(**dict(zip(names, extents, strict=True)))
    elements, footprint = describe_access(indices, source, loops)
    kept = [n for n in range(3) if extents[n] > 1]  # loops that run once make no level
    for place, level in enumerate([*kept, 3]):
        count, lines = count_touches(indices, source, loops, level)
        assert elements[place] >= count
        assert footprint[place] >= lines - LINE * elements[place]


def test_an_index_read_from_memory_touches_as_many_rows_as_it_takes_values() -> None:
    table, source = programs.buffer("table", 8), programs.buffer("x", 100, 16)
    gather = (load("table", (i,), "int64"), j)
    program = programs.copy(gather, source, *serial(i=8, j=16))
    program.buffers["table"] = table  # type: ignore[index]
    (statement,) = statements(program)
    nest = Nest(statement, Columns(Tape(), (), loops=True))
    access = next(a for a in statement.inputs if a.buffer is source)
    assert nest.footprint(access)[0].number == 8 * LINE


def test_an_index_read_from_memory_stays_within_its_limits() -> None:
    """Places 0 to 15 plus 0 to 15 are 31 elements, in two lines, although the row has 63 lines."""
    table, source = programs.buffer("table", 64), programs.buffer("x", 1000)
    limited = minimum(maximum(load("table", (i,), "int64"), 0), 15)
    program = programs.copy((limited + j,), source, *serial(i=64, j=16))
    program.buffers["table"] = table  # type: ignore[index]
    (statement,) = statements(program)
    nest = Nest(statement, Columns(Tape(), (), loops=True))
    access = next(a for a in statement.inputs if a.buffer is source)
    assert [value.number for value in nest.elements(access)] == [31, 16, 1]
    assert [value.number for value in nest.footprint(access)] == [2 * LINE, LINE, LINE]


def test_a_fused_loop_goes_through_what_its_remainder_says_again_and_again() -> None:
    source = programs.buffer("x", 8, 4, 16)
    for index, wanted in (
        ((p % 4, const(0), j), [3, 1]),
        ((p // 4, const(0), j), [1, 1]),  # neighbours in time read the same
        ((p // 4, p % 4, j), [1, 1]),
        ((p // 2 % 2, p % 2, j), [3, 1]),  # three loops were fused, of which the inner two are read
        ((p // 2 % 3, const(0), j), [2, 1]),
        ((p // 2 % 3, p // 6, j), [1, 1]),
        ((const(0), const(0), j), [1, 1]),
        (((p + 1) % 4, const(0), j), [1, 1]),  # it may be so, and is not looked for
    ):
        (statement,) = statements(programs.copy(index, source, *serial(p=12, j=16)))
        nest = Nest(statement, Columns(Tape(), (), loops=True))
        access = next(a for a in statement.inputs if a.buffer is source)
        assert [rounds.number for rounds in nest.rounds(access)] == wanted, index
        footprint, rounds = nest.footprint(access), nest.rounds(access)
        brought = [value.number for value in nest.compute_loaded_bytes(footprint, rounds)]
        assert brought[1] == brought[0] * wanted[0]


def test_reads_of_one_array_are_no_larger_than_it_together() -> None:
    source, out = programs.buffer("x", 8, 12), programs.buffer("out", 8)
    total = sum((load("x", (i, const(c)), "float32") for c in range(12)), const(0.0, "float32"))
    body = programs.nest(Store("out", (i,), total), ("i", 8, "serial"))
    (statement,) = statements(LoopProgram("sum", (source, out), body, ("out",)))
    nest = Nest(statement, Columns(Tape(), (), loops=True))
    assert nest.working_sets[0].number == 8 * 12 * 4 + LINE  # each of the twelve reads alone touches most lines
