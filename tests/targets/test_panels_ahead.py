"""Requests of the next panel of constants: all of its lines, evenly, and once an iteration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from search_space import workloads
from search_space.ir.expr import const, var
from search_space.ir.polynomial import Monomial
from search_space.ir.stmt import For, Seq
from search_space.space import generate, make_program
from targets import registry
from targets.cpu.emit import emit_program
from targets.cpu.panels_ahead import PanelAhead, find_panel_ahead
from tests.golden.cases import ATTRIBUTES

LINE = 64


def loop(name: str, extent: int) -> For:
    return For(name, const(extent), "serial", Seq(()))


def list_lines(ahead: PanelAhead, values: dict[str, int], size: int) -> list[int]:
    """The lines, by number, that an iteration asks for."""
    terms: tuple[tuple[Monomial, int], ...] = ahead.terms
    place = sum(c * int(np.prod([values[str(atom.args[0])] for atom in m])) for m, c in terms) + ahead.start
    return [place * size // LINE + line for line in range(ahead.lines)]


@settings(max_examples=200, deadline=None)
@given(
    steps=st.integers(1, 40),
    window=st.integers(1, 3),
    tiles=st.integers(2, 12),
    step=st.sampled_from([8, 16, 48, 64, 96, 512]),
    size=st.sampled_from([1, 2, 4]),
)
def test_tiles_request_the_lines_of_the_next_panel(steps: int, window: int, tiles: int, step: int, size: int) -> None:
    panel = step * steps * window
    assume(panel * size % LINE == 0)  # of another, the part of its last line may be left out
    loops = [loop("p", 3), loop("t", tiles), loop("w", window), loop("r", steps)]
    terms = [((var("p"),), panel), ((var("w"),), step * steps), ((var("r"),), step)]
    ahead = find_panel_ahead(terms, loops, lambda each: each.var in "wr", size, 1 << 30)
    assert ahead is not None
    counts, lines = [], set()
    for t, w, r in itertools.product(range(tiles), range(window), range(steps)):
        now = list_lines(ahead, {"p": 1, "t": t, "w": w, "r": r}, size)
        counts.append(len(now))
        lines |= set(now)
    first, last = 2 * panel * size // LINE, (3 * panel * size - 1) // LINE
    assert lines >= set(range(first, last + 1))
    # Nothing else is asked for but what evenness rounds up to: less than one line more an iteration.
    assert max(lines) <= first + ahead.lines * len(counts)
    assert (ahead.lines - 1) * LINE * len(counts) < panel * size  # no more lines an iteration than are needed


@pytest.mark.parametrize(
    ("loops", "most"),
    [
        (["p", "r"], 1 << 30),  # a panel that is read once
        (["t", "p", "r"], 1 << 30),  # in turn with others
        (["t", "r"], 1 << 30),  # the only one
        (["p", "t", "r"], 1023),  # one that is too large
        (["n", "t", "r"], 1 << 30),  # the only one, of rows of any number
    ],
)
def test_other_panels_are_not_requested(loops: list[str], most: int) -> None:
    around = {"p": loop("p", 3), "t": loop("t", 5), "r": loop("r", 16), "n": For("n", var("rows"), "serial", Seq(()))}
    coefficients = {"p": 256, "r": 16}
    terms = [((var(name),), coefficients[name]) for name in loops if name in coefficients]
    assert find_panel_ahead(terms, [around[name] for name in loops], lambda each: each.var == "r", 4, most) is None


@pytest.mark.parametrize("kind", ["panels_outside", "rows_outside"])
@pytest.mark.parametrize("machine", ["haswell", "znver4"])
def test_a_product_asks_once_for_a_line(kind: str, machine: str) -> None:
    """The tiles of one panel ask for the next one in the second cache; otherwise for a page ahead in the first."""
    target = registry.get(f"cpu:{machine}")
    workload = workloads.matmul(66, 128, 512, constant_b=True)
    (sketch,) = [s for s in generate(workload, target.hardware, ["direct"]).sketches if s.name == SKETCHES[kind]]
    rows = np.stack(
        np.unravel_index(np.arange(sketch.size), [len(group.table) for group in sketch.groups]), axis=1
    ).astype(np.int32)
    rows = rows[sketch.legal(rows)]
    wanted = {"matmul.i.blocks": 11, "matmul.i.tile": 6, "matmul.j.blocks": 2, "matmul.j.vectors": 2}
    (row, *_) = [r for r in rows if sketch.values(r) == {**wanted, "matmul.r.unroll": 1}]
    text = emit_program(
        make_program(workload, sketch.algorithm, sketch.trace(row)), "kernel", ATTRIBUTES, panel_bytes=1 << 17
    ).text
    lines = 2 * target.hardware.vector_bytes // LINE
    calls = [line.strip() for line in text.splitlines() if "call void @llvm.prefetch" in line]
    near = 2 if kind == "panels_outside" else 3
    assert len(calls) == (1 if kind == "panels_outside" else lines) and all(f"i32 0, i32 {near}," in c for c in calls)


SKETCHES = {"panels_outside": "direct:j.1>i.1/r", "rows_outside": "direct:i.1>j.1/r"}
