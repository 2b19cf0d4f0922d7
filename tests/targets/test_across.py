"""Transpositions on processors: tiles give what they should, read nothing else, and gather nothing."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.tuner.task import Task
from autotune.tuner.untimed import select_by_roofline
from search_space import te
from search_space.dtypes import numpy_dtype
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from targets.cpu.text import LLVM_TYPE
from tests.autotune.fakes import settings_with
from tests.gpu import candidates


def make_transposition(rows: int, row: int, dtype: str = "float32") -> Workload:
    """A matrix of rows times its neighbours along them."""
    x = te.placeholder((rows, row), dtype, "x")
    return Workload.of([x, te.compute((row, rows), lambda i, j: x[j, i], name="transpose")])


@pytest.mark.parametrize("dtype", ["float32", "int32", "int8", "float16", "bfloat16"])
@pytest.mark.parametrize(("rows", "row"), [(16, 4), (37, 21), (64, 16), (50, 5), (33, 8), (19, 35)])
def test_every_sketch_transposes_and_reads_nothing_past_the_array(rows: int, row: int, dtype: str) -> None:
    workload, target = make_transposition(rows, row, dtype), registry.get("cpu")
    x = np.arange(rows * row).astype(numpy_dtype(dtype)).reshape(rows, row)
    sketches = generate(workload, target.hardware).sketches
    assert [sketch.name for sketch in sketches] == ["direct:flat", "direct:rows", "direct:tiles"]
    for sketch in sketches:
        rows_of_choices = [[place % len(g.table) for g in sketch.groups] for place in range(3)]
        choices = np.array(rows_of_choices, np.int32).reshape(3, len(sketch.groups))
        for choice in choices[sketch.legal(choices)]:
            module = target.build(make_program(workload, sketch.algorithm, sketch.trace(choice)))
            np.testing.assert_array_equal(target.load(module).bind([x], fenced=True).run(), x.T)


def test_tiles_are_chosen_and_load_neighbours_at_once() -> None:
    workload, target = make_transposition(224, 21), registry.get("cpu")
    found = select_by_roofline(Task("transpose", workload), settings_with())
    program = make_program(workload, found.algorithm, found.trace)
    text, *_ = target.llvm_ir(program)
    assert "masked.gather" not in text
    assert text.count("load <4 x float>") == target.hardware.float_lanes


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_of_16_bits_as_many_bytes_are_moved_at_once(dtype: str) -> None:
    workload, target = make_transposition(224, 24, dtype), registry.get("cpu")
    found = select_by_roofline(Task("transpose", workload), settings_with())
    text, *_ = target.llvm_ir(make_program(workload, found.algorithm, found.trace))
    lanes, element = 2 * target.hardware.float_lanes, LLVM_TYPE[dtype]
    assert "gather" not in text
    assert text.count(f"load <8 x {element}>") == lanes
    assert text.count(f"store <{lanes} x {element}>") == 8


def test_short_axes_have_no_tiles() -> None:
    target = registry.get("cpu")
    for rows, row in [(64, 3), (5, 64)]:
        found = generate(make_transposition(rows, row), target.hardware).sketches
        assert "direct:tiles" not in [sketch.name for sketch in found]


def test_an_input_without_axes_is_no_transposition() -> None:
    x, y = te.placeholder((32, 16), name="x"), te.placeholder((), name="y")
    workload = Workload.of([x, y, te.compute((16, 32), lambda i, j: x[j, i] * y[()], name="scaled")])
    target = registry.get("cpu")
    names = [sketch.name for sketch in generate(workload, target.hardware).sketches]
    assert names == ["direct:flat", "direct:rows", "direct:tiles"]


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((2, 5, 7, 36), (0, 3, 1, 2)),
        ((3, 37, 4, 6), (1, 0, 2, 3)),
        ((2, 3, 3, 21), (0, 3, 1, 2)),
        ((5, 2, 3), (2, 0, 1)),
    ],
)
def test_short_axes_that_lie_together_are_one_row(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = te.placeholder(shape, name="x")
    moved = te.compute(
        tuple(shape[a] for a in axes), lambda *i: x[tuple(i[axes.index(a)] for a in range(len(shape)))] + 1.0, name="y"
    )
    workload, target = Workload.of([x, moved]), registry.get("cpu")
    data = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for sketch in generate(workload, target.hardware).sketches:
        row = candidates.legal(sketch, 1)[0]
        kernel = target.load(target.build(make_program(workload, sketch.algorithm, sketch.trace(row))))
        np.testing.assert_array_equal(kernel.bind([data], fenced=True).run(), data.transpose(axes) + 1)


def test_images_change_places_with_channels_without_a_gather() -> None:
    x = te.placeholder((2, 14, 14, 64), name="x")
    workload = Workload.of([x, te.compute((2, 64, 14, 14), lambda n, c, h, w: x[n, h, w, c], name="y")])
    found, target = select_by_roofline(Task("transpose", workload), settings_with()), registry.get("cpu")
    text, *_ = target.llvm_ir(make_program(workload, found.algorithm, found.trace))
    assert "gather" not in text
