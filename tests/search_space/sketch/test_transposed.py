"""Reductions of two operands with reuse are tiled, whatever the order of the operands' dimensions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from search_space import te
from search_space.hardware import Hardware
from search_space.ir.expr import Expr, variables, walk
from search_space.ir.stmt import For, Intrinsic, Store, walk_stmt
from search_space.space import Sketch, generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.gpu import candidates
from tests.native import run_program
from tests.search_space.operators.test_definitions import check

HARDWARE = registry.get("cpu:znver4").hardware
OPTIONS: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "max_examples": 20}
COMBINATIONS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "product": lambda a, b: a * b,
    "distance": lambda a, b: te.abs(a - b),
}


def reduction(
    extents: dict[str, int],
    left: str,
    right: str,
    output: str,
    combine: str = "product",
    dtype: str = "float32",
    constant: bool = False,
    ending: bool = False,
) -> Workload:
    """A sum over the letters that the output lacks; each string names the axes of a tensor in its order."""

    def shape(names: str) -> tuple[int, ...]:
        return tuple(extents[name] for name in names)

    a, b = te.placeholder(shape(left), dtype, "a"), te.placeholder(shape(right), dtype, "b", constant)
    reduced = {name: te.reduce_axis((0, extents[name]), name) for name in extents if name not in output}

    def element(*own: Expr) -> Expr:
        at = {**dict(zip(output, own, strict=True)), **reduced}
        x, y = (t[tuple(at[name] for name in names)].astype("float32") for t, names in ((a, left), (b, right)))
        return te.sum(COMBINATIONS[combine](x, y), axis=list(reduced.values()))

    out = te.compute(shape(output), element, name="c")
    if ending:
        sums = out
        out = te.compute(sums.shape, lambda *i: te.maximum(sums[i] - 0.5, 0), name="out")
    return Workload.of([a, b, out])


def is_tiled(sketch: Sketch) -> bool:
    """A decided number of results is in registers at once, and lanes of the sums read neighbours in memory."""
    if not any(column.endswith((".tile", ".vectors")) for column in sketch.columns):
        return False
    if any(isinstance(stmt, Intrinsic) for stmt in walk_stmt(sketch.program.body)):
        return True  # an instruction, which reads neighbours
    vectors = [loop for loop in walk_stmt(sketch.program.body) if isinstance(loop, For) and loop.kind == "vectorize"]
    sums = [(v.var, s) for v in vectors for s in walk_stmt(v.body) if isinstance(s, Store) and s.reducer]
    loads = [(lane, node) for lane, store in sums for node in walk(store.value) if node.op == "load"]
    return bool(loads) and not any(lane in variables(index) for lane, node in loads for index in node.args[1:-1])


def list_tiled(workload: Workload, hardware: Hardware = HARDWARE) -> list[Sketch]:
    space = generate(workload, hardware)
    assert not space.refusals
    return [sketch for sketch in space.sketches if is_tiled(sketch)]


def compute(workload: Workload, sketch: Sketch, seed: int = 0, target: str = "cpu") -> None:
    """A random candidate is the reference, on this host."""
    on, inputs = registry.get(target), workload.make_inputs(seed)
    program = make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1, seed)[0]))
    check(workload, run_program(on, program, inputs)[0], inputs)


EXTENTS = st.fixed_dictionaries({name: st.integers(*ends) for name, ends in
    {"b": (2, 3), "i": (4, 9), "j": (4, 40), "k": (1, 40), "l": (1, 5)}.items()
})  # fmt: skip
ORDERS = st.tuples(*(st.permutations(names).map("".join) for names in ("bikl", "bjkl", "bij")))
DTYPES = st.sampled_from(("float32", "float32", "bfloat16", "int8"))


@given(EXTENTS, ORDERS, st.sampled_from(sorted(COMBINATIONS)), DTYPES, st.booleans(), st.booleans(), st.integers(0, 99))
@settings(**OPTIONS)
def test_every_order_of_dimensions_is_tiled(
    extents: dict[str, int],
    orders: tuple[str, str, str],
    combine: str,
    dtype: str,
    constant: bool,
    ending: bool,
    seed: int,
) -> None:
    workload = reduction(extents, *orders, combine, dtype, constant, ending)
    found = list_tiled(workload, registry.get("cpu").hardware)
    assert found
    compute(workload, found[seed % len(found)], seed)


def gradient_of_data(constant: bool = False) -> Workload:
    """Output (n, h, w, ci) of a window of 3 x 3, turned by half a circle, over a padded gradient (n, h, w, co)."""
    d, w = te.placeholder((2, 7, 6, 20), name="d"), te.placeholder((3, 3, 18, 20), "float32", "w", constant)
    y, x, o = (te.reduce_axis((0, extent), name) for extent, name in ((3, "y"), (3, "x"), (20, "o")))

    def element(n: Expr, h: Expr, v: Expr, c: Expr) -> Expr:
        return te.sum(d[n, h + y, v + x, o] * w[2 - y, 2 - x, c, o], axis=[y, x, o])

    return Workload.of([d, w, te.compute((2, 5, 4, 18), element, name="g")])


def gradient_of_weights(padded: bool) -> Workload:
    """Output (kh, kw, ci, co): a sum over all positions of an input, maybe padded, times a gradient."""
    x, d = te.placeholder((2, 24, 18, 5), name="x"), te.placeholder((2, 24, 18, 20), name="d")
    n, h, w = (te.reduce_axis((0, extent), name) for extent, name in ((2, "n"), (24, "h"), (18, "w")))

    def around(n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        return te.if_then_else(te.all(h >= 1, h < 25, w >= 1, w < 19), x[n, h - 1, w - 1, c], 0.0)

    padding = te.compute((2, 26, 20, 5), around, name="padding", tag="pad") if padded else x
    extent = 3 if padded else 1

    def element(y: Expr, z: Expr, c: Expr, o: Expr) -> Expr:
        return te.sum(padding[n, h + y, w + z, c] * d[n, h, w, o], axis=[n, h, w])

    return Workload.of([x, d, te.compute((extent, extent, 5, 20), element, name="g")])


def products_of_pairs() -> Workload:
    """The distances between the rows of one matrix, which is read in both orders."""
    a, k = te.placeholder((9, 21), name="a"), te.reduce_axis((0, 21), "k")
    return Workload.of(
        [a, te.compute((9, 9), lambda i, j: te.sum((a[i, k] - a[j, k]) * (a[i, k] - a[j, k]), axis=k), name="c")]
    )


def turned_before() -> Workload:
    """A product by a matrix that another stage has transposed; that stage is inlined."""
    a, b = te.placeholder((6, 9), name="a"), te.placeholder((20, 9), name="b")
    turned, k = te.compute((9, 20), lambda i, j: te.maximum(b[j, i], 0), name="turned"), te.reduce_axis((0, 9), "k")
    return Workload.of([a, b, te.compute((6, 20), lambda i, j: te.sum(a[i, k] * turned[k, j], axis=k), name="c")])


def two_sums() -> Workload:
    """The real part of a product of complex matrices: a difference of two sums."""
    parts = [
        te.placeholder(shape, name=name)
        for shape, name in (((6, 9), "a"), ((6, 9), "b"), ((20, 9), "c"), ((20, 9), "d"))
    ]
    a, b, c, d = parts

    def total(x: te.Tensor, y: te.Tensor, name: str) -> te.Tensor:
        k = te.reduce_axis((0, 9), "k")
        return te.compute((6, 20), lambda i, j: te.sum(x[i, k] * y[j, k], axis=k), name=name)

    one, two = total(a, c, "one"), total(b, d, "two")
    return Workload.of([*parts, te.compute((6, 20), lambda i, j: one[i, j] - two[i, j], name="real")])


def padded_operand() -> Workload:
    """A product by a matrix that is padded along the reduction, and lies across the vectors."""
    a, b = te.placeholder((6, 12), name="a"), te.placeholder((20, 9), name="b")
    k = te.reduce_axis((0, 12), "k")
    padding = te.compute(
        (20, 12), lambda i, j: te.if_then_else(te.all(j >= 1, j < 10), b[i, j - 1], 0.0), name="padding", tag="pad"
    )
    return Workload.of([a, b, te.compute((6, 20), lambda i, j: te.sum(a[i, k] * padding[j, k], axis=k), name="c")])


def channels_first() -> Workload:
    """A channels-first output of a channels-last image."""
    x, w = te.placeholder((2, 6, 12, 5), name="x"), te.placeholder((8, 3, 5), name="w")
    y, c = te.reduce_axis((0, 3), "y"), te.reduce_axis((0, 5), "c")

    def element(n: Expr, o: Expr, h: Expr, v: Expr) -> Expr:
        return te.sum(x[n, h, v + y, c] * w[o, y, c], axis=[y, c])

    return Workload.of([x, w, te.compute((2, 8, 6, 10), element, name="out")])


@pytest.mark.parametrize(
    "workload",
    [
        gradient_of_data(),
        gradient_of_data(True),
        products_of_pairs(),
        turned_before(),
        two_sums(),
        padded_operand(),
        channels_first(),
    ],
    ids=["data", "constant", "pairs", "turned", "two sums", "padded", "channels"],
)
def test_gradients_and_other_definitions_are_tiled(workload: Workload) -> None:
    found = list_tiled(workload, registry.get("cpu").hardware)
    assert found
    for seed, sketch in enumerate(found[:: len(found) // 5 + 1]):
        compute(workload, sketch, seed)


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_each_place_of_a_copy_and_tiles_of_dots_are_the_reference(target: str) -> None:
    workload = reduction({"i": 5, "k": 20, "j": 19}, "ik", "jk", "ij")
    found = {sketch.name.rpartition("/")[2]: sketch for sketch in list_tiled(workload, registry.get(target).hardware)}
    assert {name.rpartition(":")[2] for name in found} == {
        "dots", "transposed_at_root", "transposed_at_i0.0_i1.0", "transposed_at_i1.1"
    }  # fmt: skip
    for sketch in found.values():
        compute(workload, sketch, 1, target)


def test_constants_that_tiles_pack_add_no_sketch() -> None:
    """A depthwise window by weights whose channels are in front is tiled already."""
    x, w = te.placeholder((2, 6, 20), name="x"), te.placeholder((20, 3), "float32", "w", constant=True)
    y = te.reduce_axis((0, 3), "y")
    out = te.compute((2, 4, 20), lambda n, h, c: te.sum(x[n, h + y, c] * w[c, y], axis=y), name="out")
    names = [sketch.name for sketch in generate(Workload.of([x, w, out]), HARDWARE).sketches]
    assert len(set(names)) == len(names) and not any("transposed" in name for name in names)


SMALL_CACHES = replace(HARDWARE, l2_bytes=1 << 12)


@pytest.mark.parametrize(
    "workload",
    [reduction({"i": 7, "j": 18, "k": 700}, left, right, "ij") for left in ("ik", "ki") for right in ("jk", "kj")]
    + [reduction({"i": 7, "j": 18, "k": 700}, "ik", "kj", "ij", ending=True), gradient_of_weights(False)],
    ids=str,
)
def test_long_sums_of_products_with_few_results_are_also_done_in_parts(workload: Workload) -> None:
    found = [sketch for sketch in list_tiled(workload, SMALL_CACHES) if "_parts" in sketch.name]
    assert found and not any("_parts" in sketch.name for sketch in list_tiled(workload))
    for seed, sketch in enumerate(found[::3]):
        compute(workload, sketch, seed)


def test_parts_of_a_padded_sum_of_products() -> None:
    workload = gradient_of_weights(True)
    space = generate(workload, replace(HARDWARE, l2_bytes=1 << 14))
    found = [sketch for sketch in space.sketches if "_parts" in sketch.name]
    assert not space.refusals and {sketch.name.rpartition("/")[2] for sketch in found} >= {"pad_root", "pad_inline"}
    for seed, sketch in enumerate(found[::5]):
        compute(workload, sketch, seed)


def test_a_stage_that_others_read_too_is_not_copied() -> None:
    """The copy would be made in loops that the other reader is not in."""
    a, b = te.placeholder((6, 9), name="a"), te.placeholder((6, 9), name="b")
    half, k = te.compute((6, 9), lambda i, j: b[i, j] * 0.5, name="half"), te.reduce_axis((0, 9), "k")
    sums = te.compute((6, 6), lambda i, j: te.sum(a[i, k] * half[j, k], axis=k), name="sums")
    out = te.compute((6, 6), lambda i, j: sums[i, j] + half[i, j], name="out")
    workload = Workload.of([a, b, out])
    (found,) = list_tiled(workload, registry.get("cpu").hardware)
    assert found.name == "direct:dots"
    compute(workload, found)


def test_one_row_shares_nothing() -> None:
    """A copy, or a tile of dots, would read a matrix that is used once."""
    for output in ("ij", "ji"):
        workload = reduction({"i": 1, "j": 64, "k": 64}, "ik", "jk", output)
        assert [sketch.name for sketch in generate(workload, HARDWARE).sketches] == ["direct:rows"]
