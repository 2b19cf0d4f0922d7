"""Causal attention ends its loops where a block of rows sees nothing more, and computes what it did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.graph.ops.base import find
from autotune.graph.types import TensorType
from autotune.tuner.sizes.opening import open_program
from search_space import te
from search_space.ir.stmt import For, LoopProgram, Store, walk_stmt
from search_space.lower.unseen import without_unseen
from search_space.space import SearchSpace, generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.interpreter import interpret


def attention(heads: int, rows: Any, keys: Any, depth: int, causal: int) -> list[te.Tensor]:
    shapes = (heads, rows, depth), (heads, depth, keys), (heads, keys, depth)
    return find("attention").tensors({"weights": "float32", "causal": causal}, [TensorType(s) for s in shapes])


def draw_traces(space: SearchSpace, rng: np.random.Generator, count: int) -> list[tuple[str, Any]]:
    """Algorithms and traces of legal candidates, of every sketch."""
    found = []
    for sketch in space.sketches:
        choices = np.stack([rng.integers(len(g.table), size=300) for g in sketch.groups], axis=1).astype(np.int32)
        found += [(sketch.algorithm, sketch.trace(row)) for row in choices[sketch.legal(choices)][:count]]
    return found


def runs(program: LoopProgram, buffer: str) -> set[str]:
    """Extents of the loops around stores to a buffer that no number says."""
    return {
        str(loop.extent)
        for loop in walk_stmt(program.body)
        if isinstance(loop, For) and not loop.extent.is_const
        if any(isinstance(s, Store) and s.buffer == buffer for s in walk_stmt(loop))
    }


@pytest.mark.parametrize(("rows", "keys", "causal"), [(40, 40, 1), (33, 33, 1), (48, 24, 2), (30, 50, 1), (7, 7, 1)])
def test_it_computes_the_reference(rows: int, keys: int, causal: int) -> None:
    workload, target = Workload.of(attention(2, rows, keys, 32, causal)), registry.get("cpu")
    inputs, (rtol, atol) = workload.make_inputs(0), workload.tolerance
    wanted = workload.reference(*inputs)
    for algorithm, trace in draw_traces(generate(workload, target.hardware), np.random.default_rng(rows), 4):
        program = make_program(workload, algorithm, trace)
        bound = target.load(target.build(program)).bind(inputs, fenced=True)
        np.testing.assert_allclose(bound.run(2), wanted, rtol, atol)
        assert not bound.damage()


def test_loops_of_all_that_is_masked_are_shortened() -> None:
    target, rng = registry.get("cpu"), np.random.default_rng(0)
    for length in (512, 48):
        workload = Workload.of(attention(2, length, length, 16, 1))
        chains = [make_program(workload, *each) for each in draw_traces(generate(workload, target.hardware), rng, 6)]
        chains = [p for p in chains if "exponent" in p.buffers]
        shortened = [without_unseen(p) for p in chains]
        if length == 512:
            made = [[name for name in ("scores", "exponent", "weighted") if runs(p, name)] for p in shortened]
            assert ["scores", "exponent", "weighted"] in made
            continue
        inputs, name = (
            {s.name: a for s, a in zip(workload.inputs, workload.make_inputs(0), strict=True)},
            workload.output.name,
        )
        for before, after in zip(chains[:2], shortened[:2], strict=True):
            np.testing.assert_array_equal(interpret(before, inputs)[name], interpret(after, inputs)[name])


def test_what_is_not_causal_stays_as_it_is() -> None:
    workload, target = Workload.of(attention(2, 24, 24, 32, 0)), registry.get("cpu")
    for algorithm, trace in draw_traces(generate(workload, target.hardware), np.random.default_rng(0), 2):
        program = make_program(workload, algorithm, trace)
        assert without_unseen(program) is program


def test_rows_that_see_nothing_are_what_they_were() -> None:
    """The first three rows see no column: all of their weights are alike."""
    q, k, v = (te.placeholder(s, name=n) for n, s in zip("QKV", ((40, 16), (16, 40), (40, 16)), strict=True))
    d, j, t, r = (te.reduce_axis((0, e), n) for n, e in zip("djtr", (16, 40, 40, 40), strict=True))
    score = te.compute((40, 40), lambda i, c: te.sum(q[i, d] * k[d, c], axis=d), name="score")
    seen = te.compute((40, 40), lambda i, c: te.if_then_else(c <= i - 3, score[i, c], -1e30), name="seen")
    top = te.compute((40,), lambda i: te.max(seen[i, j], axis=j), name="top")
    e = te.compute((40, 40), lambda i, c: te.exp(seen[i, c] - top[i]), name="e")
    total = te.compute((40,), lambda i: te.sum(e[i, t], axis=t), name="total")
    mixed = te.compute((40, 16), lambda i, c: te.sum(e[i, r] * v[r, c], axis=r), name="mixed")
    workload = Workload.of([q, k, v, te.compute((40, 16), lambda i, c: mixed[i, c] / total[i], name="O")])
    target, inputs = registry.get("cpu"), workload.make_inputs(0)
    rtol, atol = workload.tolerance
    np.testing.assert_allclose(workload.reference(*inputs)[0], inputs[2].mean(0), rtol=1e-4, atol=1e-5)
    for algorithm, trace in draw_traces(generate(workload, target.hardware), np.random.default_rng(0), 3):
        program = make_program(workload, algorithm, trace)
        assert str(without_unseen(program)) == str(program)
        found = target.load(target.build(program)).bind(inputs).run(2)
        np.testing.assert_allclose(found, workload.reference(*inputs), rtol, atol)


def test_zeros_that_somebody_stores_are_made() -> None:
    """The weights are an output themselves, so that no loop may leave them out."""
    x = te.placeholder((20, 20), name="X")
    seen = te.compute((20, 20), lambda i, j: te.if_then_else(j <= i, x[i, j], -1e30), name="seen")
    r = te.reduce_axis((0, 20), "r")
    top = te.compute((20,), lambda i: te.max(seen[i, r], axis=r), name="top")
    out = te.compute((20, 20), lambda i, j: te.exp(seen[i, j] - top[i]), name="out")
    workload, target = Workload.of([x, out]), registry.get("cpu")
    inputs, (rtol, atol) = workload.make_inputs(0), workload.tolerance
    for algorithm, trace in draw_traces(generate(workload, target.hardware), np.random.default_rng(0), 3):
        bound = target.load(target.build(make_program(workload, algorithm, trace))).bind(inputs, fenced=True)
        found = bound.run(2)
        np.testing.assert_allclose(found, workload.reference(*inputs), rtol, atol)
        assert not np.triu(found, 1).any() and not bound.damage()


def test_of_open_sizes() -> None:
    target = registry.get("cpu")

    def define(n: Any) -> list[te.Tensor]:
        """Defines attention by the expressions of `attention`, whose graph knows its sizes."""
        q, k, v = (
            te.placeholder(s, name=name) for name, s in zip("QKV", ((2, n, 32), (2, 32, n), (2, n, 32)), strict=True)
        )
        d, j, t, r = (te.reduce_axis((0, e), name) for name, e in zip("djtr", (32, n, n, n), strict=True))
        score = te.compute((2, n, n), lambda h, i, c: te.sum(q[h, i, d] * k[h, d, c], axis=d), name="score")
        seen = te.compute((2, n, n), lambda h, i, c: te.if_then_else(c <= i, score[h, i, c], -1e30), name="seen")
        top = te.compute((2, n), lambda h, i: te.max(seen[h, i, j], axis=j), name="top")
        e = te.compute((2, n, n), lambda h, i, c: te.exp(seen[h, i, c] - top[h, i]), name="e")
        total = te.compute((2, n), lambda h, i: te.sum(e[h, i, t], axis=t), name="total")
        mixed = te.compute((2, n, 32), lambda h, i, c: te.sum(e[h, i, r] * v[h, r, c], axis=r), name="mixed")
        return [q, k, v, te.compute((2, n, 32), lambda h, i, c: mixed[h, i, c] / total[h, i], name="O")]

    space = generate(Workload.of(define(64)), target.hardware)
    found = 0
    for _, trace in draw_traces(space, np.random.default_rng(3), 3):
        program = open_program(define, trace, 64, 200)
        found += bool(runs(without_unseen(program), "e"))
        kernel = target.load(target.build(program))
        for n in (64, 101, 200):
            workload = Workload.of(define(n))
            inputs, (rtol, atol) = workload.make_inputs(n), workload.tolerance
            bound = kernel.bind(inputs, fenced=True)
            np.testing.assert_allclose(bound.run(2), workload.reference(*inputs), rtol, atol)
            assert not bound.damage()
    assert found
