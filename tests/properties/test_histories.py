"""Code does not depend on what a process has made before, on what it still holds, and on hashes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from search_space import te
from search_space.ir import expr
from search_space.ir.expr import Expr, size, var, walk
from search_space.ir.flat import merge_divisions
from search_space.ir.polynomial import make_monomial, nonpositive, poly
from search_space.ir.sizes import find_sizes
from search_space.ir.stmt import LoopProgram, substitute_program
from search_space.lower import cleanup, lower
from search_space.schedule.errors import ScheduleError
from targets.base import BuildError
from targets.c.emit import emit_program as emit_c
from targets.cpu.emit import emit_program as emit_cpu
from targets.cpu.integers import Integers
from targets.cpu.text import Text, Value
from tests.properties.open_programs import OPEN, initial
from tests.properties.running import no_code
from tests.properties.traces import Dice, random_trace

ROOT = Path(__file__).parents[2]


def texts() -> list[str]:
    """LLVM text of programs of open sizes, and C text of them at the greatest; what has no code is left out."""
    written: list[str] = []
    for program in (*_make_copies(), *_draw_programs()):
        try:
            written.append(emit_cpu(program, "kernel", "").text)
            known = cleanup(substitute_program(program, {name: high for name, (_, high) in program.sizes.items()}))
            written.append(emit_c(known, "kernel").text)
        except BuildError as error:
            assert no_code(error)
    return written


def _make_copies() -> Iterator[LoopProgram]:
    """Heads that are transposed, rows of a fused axis in parallel, and a product that is clamped: all sizes open."""
    n, m, r = te.var("n", 8, 32), te.var("m", 2, 32), te.reduce_axis((0, 8), "r")
    x = te.placeholder((n, m, 4, 8), name="x")
    y = te.compute((n, 4, 8, m), lambda b, h, c, i: x[b, i, h, c], name="y")
    s = te.create_schedule(y.op)
    b, h, c, i = s[y].op.axis
    outer, _ = s[y].split(s[y].fuse(b, h, c), 64, tail="guard")
    _, lanes = s[y].split(i, 16, tail="guard")
    s[y].parallel(outer)
    s[y].vectorize(lanes)
    yield autotune.lower(s, [x, y])
    a, w = te.placeholder((n, m, 8), name="a"), te.placeholder((n, 8, m), name="w")
    z = te.compute((n, m, m), lambda g, i, j: te.sum(a[g, i, r] * w[g, r, j], axis=r), name="z")
    s = te.create_schedule(z.op)
    local = s.cache_write(z, "local")
    g, i, j = s[z].op.axis
    go, gi = s[z].split(g, 8, tail="clamp")
    jo, ji = s[z].split(j, 16, tail="guard")
    s[z].reorder(go, jo, i, gi, ji)
    s[z].parallel(go)
    s[z].unroll(gi)
    s[z].vectorize(ji)
    s[local].compute_at(s[z], i)
    lg, li, lj = local.axis
    ro, ri = s[local].split(local.reduce_axis[0], 4)
    s[local].reorder(ro, ri, lg, li, lj)
    s[local].unroll(ri)
    s[local].unroll(lg)
    s[local].vectorize(lj)
    yield autotune.lower(s, [a, w, z])


def _draw_programs() -> Iterator[LoopProgram]:
    """Programs with random schedules."""
    for seed, (name, (_, dtypes)) in product(range(2), OPEN.items()):
        with suppress(ScheduleError):
            yield cleanup(lower(random_trace(Dice(seed), initial(name, dtypes[0]))[1]))


def test_code_is_the_same_whichever_expressions_are_older_or_still_held(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[Expr, None] = {}
    plain, rng = expr._intern, np.random.default_rng(0)

    def note_node(key: tuple[Any, ...], args: tuple[Any, ...]) -> Expr:
        node = plain(key, args)
        made[node] = None
        return node

    monkeypatch.setattr(expr, "_intern", note_node)
    first = texts()
    assert len(first) >= 16
    choices: list[Callable[[Expr], bool]] = [
        lambda e: not find_sizes([e]) and all(node.op != "load" for node in walk(e)),  # as at other sizes
        lambda e: bool(find_sizes([e])),
        lambda e: rng.random() < 0.2,
        lambda e: True,
    ]
    for chosen in choices:
        held = {node: None for node in made if chosen(node)}
        made.clear()
        gc.collect()  # the others end, and are younger than these when they are made again
        assert texts() == first
        del held


def test_code_is_the_same_whatever_strings_hash_to() -> None:
    program = "from tests.properties.test_histories import texts; print(texts())"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    written = {child.communicate()[0] for child in children}
    assert all(child.returncode == 0 for child in children)
    assert len(written) == 1


@pytest.mark.parametrize("sizes_first", [True, False])
def test_factors_stand_in_textual_order_and_divisions_merge_whichever_is_older(sizes_first: bool) -> None:
    name = f"history_{sizes_first}"
    makers: list[Callable[[], Expr]] = [lambda: size("pitch", 2, 32), lambda: var(name) // 8]
    pitch, quotient = (makers[0](), makers[1]()) if sizes_first else reversed([makers[1](), makers[0]()])
    (monomial,) = poly(pitch * quotient)
    assert monomial == make_monomial([quotient, pitch])
    assert [str(atom) for atom in monomial] == sorted(map(str, monomial))
    assert merge_divisions(quotient * 8 * pitch + var(name) % 8 * pitch) is var(name) * pitch


def test_a_number_is_computed_once_although_nobody_holds_its_expression() -> None:
    text = Text()
    text.push().variables["n"] = Value("%n", "int64")
    integers = Integers(text)
    ended = [weakref.ref(size("n", 2, 32) * 4321), weakref.ref(size("n", 2, 32) < 4321)]
    assert all(e() is None for e in ended)  # as are these, once their values are written
    numbers = [integers.scalar(size("n", 2, 32) * 4321) for _ in range(2)]
    conditions = [integers.condition(size("n", 2, 32) < 4321) for _ in range(2)]
    assert numbers[0] == numbers[1]
    assert conditions[0] == conditions[1]


def test_a_proof_does_not_depend_on_the_order_of_terms() -> None:
    x, y, z = var("x"), var("y"), var("z")
    one = poly(x + y - x * y - x * z)  # x * z takes x, so that x * y is left for y
    answers = {nonpositive(dict(order)) for order in permutations(one.items())}
    assert len(answers) == 1
