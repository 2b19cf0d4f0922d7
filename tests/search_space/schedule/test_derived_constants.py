"""Computations of constants alone: done once before the first call, packed or not, on their own or several together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autotune
from search_space import te
from search_space.ir.expr import Expr
from search_space.ir.printer import print_program
from search_space.ir.verify import verify
from search_space.lower import cleanup, lower
from search_space.schedule.errors import ScheduleError
from search_space.schedule.state import initial_state
from search_space.schedule.steps import Pack
from search_space.tags import Tag
from targets import registry
from targets.base import Module
from targets.cpu.export import header
from tests.interpreter import interpret

RNG = np.random.default_rng(0)
X, W = RNG.uniform(-1, 1, (3, 6)).astype(np.float32), RNG.uniform(-1, 1, (6, 5)).astype(np.float32)
SCALE, SHIFT = (RNG.uniform(-1, 1, 5).astype(np.float32) for _ in range(2))
ARRAYS = {"x": X, "w": W, "scale": SCALE, "shift": SHIFT}
EXPECTED = np.maximum((X @ W) * SCALE + SHIFT * SCALE, 0)


def make_folded_scales() -> list[te.Tensor]:
    """relu(x @ (w * scale) + shift * scale), of which the products of constants are two derived constants."""
    x = te.placeholder((3, 6), name="x")
    w = te.placeholder((6, 5), name="w", constant=True)
    scale, shift = (te.placeholder((5,), name=name, constant=True) for name in ("scale", "shift"))
    again = te.compute((5,), lambda k: scale[k] * 1.0, name="again", tag=Tag.CONSTANT)
    weights = te.compute((6, 5), lambda c, k: w[c, k] * again[k], name="weights", tag=Tag.CONSTANT)
    bias = te.compute((5,), lambda k: shift[k] * scale[k], name="bias", tag=Tag.CONSTANT)
    c = te.reduce_axis((0, 6), "c")
    dense = te.compute((3, 5), lambda i, k: te.sum(x[i, c] * weights[c, k], axis=c), name="dense")
    return [x, w, scale, shift, te.compute((3, 5), lambda i, k: te.maximum(dense[i, k] + bias[k], 0.0), name="out")]


@pytest.mark.parametrize(
    "pack",
    [None, Pack("weights", ((), (4,)), ((1, 0), (0, 0), (1, 1))), Pack("bias", ((2, 2),), ((0, 2), (0, 0), (0, 1)))],
)
def test_interpreter_and_kernel_compute_the_reference(pack: Pack | None) -> None:
    *inputs, out = make_folded_scales()
    state = initial_state([out], inputs=inputs)
    program = cleanup(lower(state if pack is None else pack.apply(state)))
    verify(program)
    assert [b.name for b in program.inputs] == list(ARRAYS)
    assert [b.name for b in program.params] == ["x", "weights.packed", "bias.packed", "out"]
    np.testing.assert_allclose(interpret(program, ARRAYS)["out"], EXPECTED, rtol=1e-5, atol=1e-6)
    target = registry.get("cpu")
    module = Module.from_bytes(target.build(program).to_bytes())
    bound = target.load(module).bind(list(ARRAYS.values()), copies=2)
    np.testing.assert_allclose(bound.run(), EXPECTED, rtol=1e-5, atol=1e-6)


def test_what_is_computed_before_is_no_loop_of_the_kernel() -> None:
    *inputs, out = make_folded_scales()
    program = lower(initial_state([out], inputs=inputs))
    assert [s.name for s in initial_state([out], inputs=inputs).stages] == ["dense", "out"]
    text = print_program(program).split("kernel(")[1]
    assert "scale" not in text and "w[" not in text


def test_a_source_that_the_kernel_reads_too_stays_a_parameter() -> None:
    w = te.placeholder((4,), name="w", constant=True)
    double = te.compute((4,), lambda i: w[i] * 2.0, name="double", tag=Tag.CONSTANT)
    out = te.compute((4,), lambda i: double[i] - w[i], name="out")
    program = lower(initial_state([out]))
    assert [b.name for b in program.params] == ["w", "double.packed", "out"]
    given = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(interpret(program, {"w": given})["out"], given)
    target = registry.get("cpu")
    np.testing.assert_array_equal(target.load(target.build(cleanup(program))).bind([given]).run(), given)


def test_handwritten_kernels_take_sources_in_any_order() -> None:
    x, w, scale, shift, out = make_folded_scales()
    schedule = te.create_schedule(out.op)
    kernel = autotune.build(schedule, [shift, w, x, scale, out])
    found = np.zeros((3, 5), np.float32)
    kernel(SHIFT, W, X, SCALE, found)
    np.testing.assert_allclose(found, EXPECTED, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="`tensors` must be x, w, scale, shift, out"):
        autotune.lower(schedule, [x, w, out])


def test_the_header_has_a_function_that_takes_every_source(tmp_path: Path) -> None:
    *inputs, out = make_folded_scales()
    module = registry.get("cpu").build(cleanup(lower(initial_state([out], inputs=inputs))))
    text = header(module, "folded")
    assert "folded_pack_w_scale(const float *w, const float *scale, float *weights_packed)" in text
    assert "Lays out shift[5], scale[5] as bias.packed[5]" in text.replace("(", "[").replace(",)", "]").replace(
        ")", "]"
    )


def test_what_is_not_of_constants_alone_is_refused() -> None:
    x, w = te.placeholder((4,), name="x"), te.placeholder((4,), name="w", constant=True)
    r = te.reduce_axis((0, 4), "r")
    mixed = te.compute((4,), lambda i: x[i] * w[i], name="mixed", tag=Tag.CONSTANT)
    total = te.compute((1,), lambda i: te.sum(w[r], axis=r), name="total", tag=Tag.CONSTANT)
    ones = te.compute((4,), lambda i: te.const(1.0, "float32"), name="ones", tag=Tag.CONSTANT)
    for message, stage in (
        ("must read constants alone, but mixed reads x", mixed),
        ("must neither reduce nor be an output, but got total", total),
        ("must read constants alone, but ones reads nothing", ones),
    ):

        def double(i: te.IterVar, stage: te.Tensor = stage) -> Expr:
            return stage[i] * 2.0

        with pytest.raises(ScheduleError, match=message):
            initial_state([te.compute((1,), lambda i: double(i), name="out")])
    with pytest.raises(ScheduleError, match="be an output, but got only"):
        initial_state([te.compute((4,), lambda i: w[i] * 2.0, name="only", tag=Tag.CONSTANT)])


def test_only_loops_that_conditions_ask_for_are_unrolled() -> None:
    w = te.placeholder((8,), name="w", constant=True)
    either = te.compute(
        (2, 8), lambda i, k: te.if_then_else(te.eq(i, 0), w[k], w[k] * 2.0), name="either", tag=Tag.CONSTANT
    )
    out = te.compute((2, 8), lambda i, k: either[i, k] + 0.5, name="out")
    (prologue,) = lower(initial_state([out])).prologues
    assert print_program(prologue).splitlines()[1:3] == ["  for either.p1 in 8:", "    unroll for either.p0 in 2:"]
