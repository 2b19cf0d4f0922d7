"""Kernels on the CPU whose sizes are open: schedules by hand are right at each size, and other arrays are refused."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autotune
from autotune.handwritten import build_for_sizes
from search_space import te
from search_space.ir.sizes import span
from search_space.ir.verify import VerifyError
from search_space.schedule.facade import Schedule
from search_space.schedule.intrinsics import get_intrinsic
from targets import registry
from targets.base import BuildError, Module, RunError
from targets.cpu.emit import emit_program
from targets.dispatch import Dispatch, Within

HIGH = 37
"""Upper bound of every size: several tiles and a rest."""

Tensors = list[te.Tensor]
Arrays = list[NDArray[Any]]
ScheduledTensors = tuple[Schedule, Tensors]
rng = np.random.default_rng(0)


def draw(*shape: int) -> NDArray[Any]:
    return rng.standard_normal(shape, np.float32)


def layer(rows: int = 4, low: int = 4, tail: str = "clamp") -> ScheduledTensors:
    """n rows times packed weights: tiles of registers, rows in parallel."""
    n, r = te.var("n", low, HIGH), te.reduce_axis((0, 12), "r")
    a, b = te.placeholder((n, 12), name="A"), te.placeholder((12, 24), name="B", constant=True)
    c = te.compute((n, 24), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    s.pack(b, factors=[(), (8,)], order=[(1, 0), (0, 0), (1, 1)])
    local = s.cache_write(c, "local")
    i, j = s[c].op.axis
    io, ii = s[c].split(i, rows, tail=tail)
    jo, jl = s[c].split(j, 8)
    s[c].reorder(io, jo, ii, jl)
    s[c].parallel(io)
    s[c].unroll(ii)
    s[c].vectorize(jl)
    s[local].compute_at(s[c], jo)
    row, column = local.axis
    (inner,) = local.reduce_axis
    s[local].reorder(inner, row, column)
    s[local].unroll(row)
    s[local].vectorize(column)
    return s, [a, b, c]


def product(tail: str = "guard") -> ScheduledTensors:
    """(n, k) x (k, m), whose strides are open; a part of the sum at a time."""
    n, k, m = (te.var(name, 1, HIGH) for name in "nkm")
    a, b, r = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B"), te.reduce_axis((0, k), "r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    i, j = c.op.axis
    io, ii = s[c].split(i, 4, tail="guard")
    jo, jl = s[c].split(j, 8, tail="guard")
    ro, ri = s[c].split(r, 4, tail=tail)
    s[c].reorder(io, jo, ro, ri, ii, jl)
    s[c].parallel(io)
    s[c].unroll(ri)
    s[c].unroll(ii)
    s[c].vectorize(jl)
    return s, [a, b, c]


def accumulation(tail: str) -> ScheduledTensors:
    """Sums over an open axis in registers, which a loop that may run not at all leaves as they were."""
    n = te.var("n", 1, HIGH)
    a, b, r = te.placeholder((8, n), name="A"), te.placeholder((n, 16), name="B"), te.reduce_axis((0, n), "r")
    c = te.compute((8, 16), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    local = s.cache_write(c, "local")
    i, j = s[c].op.axis
    io, ii = s[c].split(i, 4)
    s[c].parallel(io)
    s[c].unroll(ii)
    s[c].vectorize(j)
    s[local].compute_at(s[c], io)
    (row, column), (inner,) = local.axis, local.reduce_axis
    outer, part = s[local].split(inner, 6, tail=tail)
    s[local].reorder(outer, part, row, column)
    s[local].unroll(part)
    s[local].unroll(row)
    s[local].vectorize(column)
    return s, [a, b, c]


def scaling(tail: str = "guard") -> ScheduledTensors:
    """Element-wise over two open axes, fused to one, in vectors."""
    n, m = te.var("n", 1, HIGH), te.var("m", 8, HIGH)
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0 + 1.0, name="B")
    s = te.create_schedule(b.op)
    outer, lanes = s[b].split(s[b].fuse(*b.op.axis), 8, tail=tail)
    s[b].parallel(outer)
    s[b].vectorize(lanes)
    return s, [a, b]


def row_sums(tail: str = "guard") -> ScheduledTensors:
    """The sum of an open axis: partial sums in vectors, then one of these."""
    n = te.var("n", 1, HIGH)
    a, r = te.placeholder((3, n), name="A"), te.reduce_axis((0, n), "r")
    b = te.compute((3,), lambda i: te.sum(a[i, r], axis=r), name="B")
    s = te.create_schedule(b.op)
    if tail == "guard":
        _, lanes = s[b].split(r, 8, tail=tail)
        partial = s.rfactor(b, lanes)
        s[partial].compute_at(s[b], s[b].op.axis[0])
        s[partial].vectorize(partial.axis[-1])
    else:
        s[b].vectorize(s[b].split(r, 8, tail=tail)[1])
    return s, [a, b]


def softmax(_: str) -> ScheduledTensors:
    """Schedules softmax over an open axis, a row at a time."""
    n = te.var("n", 1, HIGH)
    x = te.placeholder((3, n), name="X")
    j, k = te.reduce_axis((0, n), "j"), te.reduce_axis((0, n), "k")
    top = te.compute((3,), lambda i: te.max(x[i, j], axis=j), "top")
    e = te.compute((3, n), lambda i, v: te.exp(x[i, v] - top[i]), "e")
    total = te.compute((3,), lambda i: te.sum(e[i, k], axis=k), "total")
    y = te.compute((3, n), lambda i, v: e[i, v] / total[i], "Y")
    s = te.create_schedule(y.op)
    row, column = y.op.axis
    s[y].parallel(row)
    s[y].vectorize(s[y].split(column, 8, tail="guard")[1])
    for stage in (total, e, top):
        s[stage].compute_at(s[y], row)
    s[e].vectorize(s[e].split(e.op.axis[1], 8, tail="guard")[1])
    return s, [x, y]


def conv(_: str) -> ScheduledTensors:
    """A convolution of open length, padded by 1; the padding is made at a tile of its consumer."""
    n = te.var("n", 6, HIGH)
    x, w = te.placeholder((n, 4), name="X"), te.placeholder((3, 4, 8), name="W")
    pad = te.compute((n + 2, 4), lambda i, c: te.if_then_else(te.all(i >= 1, i < n + 1), x[i - 1, c], 0.0), "pad")
    r, c = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 4), "c")
    y = te.compute((n, 8), lambda i, k: te.sum(pad[i + r, c] * w[r, c, k], axis=[r, c]), "Y")
    s = te.create_schedule(y.op)
    local = s.cache_write(y, "local")
    i, k = s[y].op.axis
    io, ii = s[y].split(i, 6, tail="clamp")
    s[y].parallel(io)
    s[y].unroll(ii)
    s[y].vectorize(k)
    s[local].compute_at(s[y], io)
    s[pad].compute_at(s[y], io)
    (row, column), reduced = local.axis, local.reduce_axis
    s[local].reorder(*reduced, row, column)
    s[local].unroll(row)
    s[local].vectorize(column)
    return s, [x, w, y]


def numpy_softmax(x: NDArray[Any]) -> NDArray[Any]:
    e = np.exp(x - x.max(1, keepdims=True))
    found: NDArray[Any] = e / e.sum(1, keepdims=True)
    return found


def numpy_conv(x: NDArray[Any], w: NDArray[Any]) -> NDArray[Any]:
    padded = np.pad(x, ((1, 1), (0, 0)))
    found: NDArray[Any] = sum(padded[i : i + len(x)] @ w[i] for i in range(3))  # type: ignore[assignment]
    return found


Case = tuple[Callable[[], ScheduledTensors], Callable[[int], Arrays], Callable[..., NDArray[Any]]]
CASES: dict[str, Case] = {
    "layer_clamp": (layer, lambda n: [draw(n, 12), draw(12, 24)], np.matmul),
    "layer_guard": (lambda: layer(4, 1, "guard"), lambda n: [draw(n, 12), draw(12, 24)], np.matmul),
    "layer_peel": (lambda: layer(4, 1, "peel"), lambda n: [draw(n, 12), draw(12, 24)], np.matmul),
    "product_guard": (
        product,
        lambda n: [draw(n, 1 + n * 5 % HIGH), draw(1 + n * 5 % HIGH, HIGH + 1 - n)],
        np.matmul,
    ),
    "product_peel": (lambda: product("peel"), lambda n: [draw(n, HIGH + 1 - n), draw(HIGH + 1 - n, n)], np.matmul),
    "accumulated_guard": (lambda: accumulation("guard"), lambda n: [draw(8, n), draw(n, 16)], np.matmul),
    "accumulated_peel": (lambda: accumulation("peel"), lambda n: [draw(8, n), draw(n, 16)], np.matmul),
    "scaled_guard": (scaling, lambda n: [draw(n, max(8, HIGH - n))], lambda a: a * 2 + 1),
    "scaled_clamp": (lambda: scaling("clamp"), lambda n: [draw(n, max(8, n))], lambda a: a * 2 + 1),
    "scaled_peel": (lambda: scaling("peel"), lambda n: [draw(n, max(8, n))], lambda a: a * 2 + 1),
    "summed_guard": (row_sums, lambda n: [draw(3, n)], lambda a: a.sum(1)),
    "summed_peel": (lambda: row_sums("peel"), lambda n: [draw(3, n)], lambda a: a.sum(1)),
    "softmax": (lambda: softmax(""), lambda n: [draw(3, n)], numpy_softmax),
    "conv": (lambda: conv(""), lambda n: [draw(max(6, n), 4), draw(3, 4, 8)], numpy_conv),
}
"""Schedule, inputs at a size, and what NumPy makes of them."""


@pytest.mark.parametrize("name", CASES)
def test_one_kernel_runs_at_every_size(name: str) -> None:
    make, inputs, wanted = CASES[name]
    s, tensors = make()
    kernel = autotune.build(s, tensors)
    ((least, most), *_) = kernel.module.sizes.values()
    for n in range(least, most + 1):
        arrays = inputs(n)
        bound = kernel.bind(arrays, fenced=True)
        np.testing.assert_allclose(bound.run(2), wanted(*arrays), rtol=1e-4, atol=1e-5, err_msg=f"n={n}")
        assert not bound.damage()


def build_module(s: Schedule, tensors: Tensors, target: str = "cpu") -> Module:
    module: Module = registry.get(target).build(autotune.lower(s, tensors))
    return module


def test_what_is_known_outside_of_loops_is_computed_there() -> None:
    """Open strides are carried by pointers: a step of the reduction multiplies no index."""
    n, k = te.var("n", 4, 64), te.var("k", 1, 64)
    a, b, r = te.placeholder((n, k), name="A"), te.placeholder((k, n), name="B"), te.reduce_axis((0, k), "r")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    local = s.cache_write(c, "local")
    i, j = s[c].op.axis
    s[c].split(i, 2, tail="clamp")
    jo, jl = s[c].split(j, 4, tail="clamp")
    s[c].vectorize(jl)
    s[local].compute_at(s[c], jo)
    (row, column), (inner,) = local.axis, local.reduce_axis
    s[local].reorder(inner, row, column)
    s[local].unroll(row)
    s[local].vectorize(column)
    text = emit_program(autotune.lower(s, [a, b, c]), "kernel", "nounwind").text
    (loop,) = [part for part in re.split(r"\nafter\d+:", text) if "llvm.fma" in part]
    body = loop[loop.rindex("\nloop") :]
    assert "fma" in body and " mul " not in body and "div" not in body


def test_registers_pass_by_loops_that_do_not_run() -> None:
    s, tensors = accumulation("peel")
    text = build_module(s, tensors).llvm_ir
    merged = re.findall(r"after\d+:\n((?:  %v\d+ = phi <16 x float> .*\n)+)", text)
    assert [group.count("phi") for group in merged] == [4, 4]  # behind the whole tiles, and behind the rest


def test_open_modules_survive_the_wire() -> None:
    module = build_module(*conv(""))
    assert module.sizes == {"n": (6, HIGH)}
    (given,) = [p for p in module.parameters if p.name == "X"]
    assert given.shape == (HIGH, 4) and given.extents == ("n", 4) and given.at({"n": 7}).shape == (7, 4)
    again = Module.from_bytes(module.to_bytes())
    assert again == module
    x, w = draw(20, 4), draw(3, 4, 8)
    found = registry.get("cpu").load(again).bind([x, w]).run()
    np.testing.assert_allclose(found, numpy_conv(x, w), rtol=1e-4, atol=1e-5)


def test_extents_of_outputs_are_worked_out() -> None:
    n, r = te.var("n", 3, HIGH), te.reduce_axis((0, 3), "r")
    x = te.placeholder((n,), name="X")
    y = te.compute(((n - 1) // 2,), lambda i: te.max(x[i * 2 + r], axis=r), "Y")
    kernel = autotune.build(te.create_schedule(y.op), [x, y])
    for size in (3, 4, HIGH):
        given, found = draw(size), np.zeros((size - 1) // 2, np.float32)
        kernel(given, found)
        np.testing.assert_array_equal(found, [given[2 * i : 2 * i + 3].max() for i in range((size - 1) // 2)])
    with pytest.raises(RunError, match=r"output `Y` must be float32 of shape \(2,\), but got float32 of shape \(3,\)"):
        kernel(draw(5), np.zeros(3, np.float32))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(3, 0), (0, 5)], "size `k` must be 1 to 37, but axis 1 of `A` is 0"),
        ([(3, 4), (4, 38)], "size `m` must be 1 to 37, but axis 1 of `B` is 38"),
        ([(3, 4), (5, 6)], "size `k` must be one number, but axis 1 of `A` is 4, axis 0 of `B` is 5"),
        ([(3, 4, 1), (4, 6)], r"input `A` must have 2 axes, but got shape \(3, 4, 1\)"),
        ([(3, 4)], "a kernel must be given its 2 inputs"),
    ],
)
def test_sizes_that_a_kernel_does_not_take_are_refused(shapes: list[tuple[int, ...]], message: str) -> None:
    s, tensors = product()
    kernel = autotune.build(s, tensors)
    with pytest.raises(RunError, match=message):
        kernel.bind([draw(*shape) for shape in shapes])


def test_arrays_that_sizes_do_not_make_are_refused() -> None:
    s, tensors = layer()
    kernel = autotune.build(s, tensors)
    with pytest.raises(RunError, match=r"input `A` must be float32 of shape \(5, 12\), but got float32 of shape"):
        kernel.bind([draw(5, 13), draw(12, 24)])
    with pytest.raises(RunError, match=r"input `A` must be float32 of shape \(5, 12\), but got float64 of shape"):
        kernel.bind([draw(5, 12).astype(np.float64), draw(12, 24)])


@pytest.mark.parametrize("target", ["c", "cuda:sm_90a", "vta"])
def test_other_targets_take_no_open_sizes(target: str) -> None:
    with pytest.raises(VerifyError, match="shapes of kernel must be numbers here, but got the size n, m"):
        build_module(*scaling(), target)


def test_arrays_that_may_be_too_large_are_refused() -> None:
    n, m = te.var("n", 1, 1 << 16), te.var("m", 1, 1 << 15)
    a = te.placeholder((n, m), name="A")
    b = te.compute((n,), lambda i: a[i, 0], name="B")
    with pytest.raises(
        BuildError, match=r"`A` must have fewer than 2\*\*31 elements for all sizes, but has up to 2147"
    ):
        build_module(te.create_schedule(b.op), [a, b])


def test_an_exported_kernel_is_told_its_sizes(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs the system package that has cc")
    s, tensors = scaling()
    module = build_module(s, tensors)
    registry.get("cpu").export(module, tmp_path, "scaled")
    text = (tmp_path / "scaled.h").read_text()
    assert "/* A[n, m], B[n, m]: dense, row-major, n from 1 to 37, m from 8 to 37. */" in text
    program = """
#include <stdio.h>
#include "scaled.h"
int main(void) {
  static float a[5 * 9], b[5 * 9];
  static _Alignas(64) char space[SCALED_WORKSPACE_BYTES(2)];
  for (int i = 0; i < 45; i++) a[i] = (float)i;
  scaled_run(a, b, 5, 9, 2, space);
  for (int i = 0; i < 45; i++) if (b[i] != 2 * a[i] + 1) return 1;
  puts("same");
}
"""
    (tmp_path / "main.c").write_text(program)
    link = [compiler, "main.c", "-o", "main", "./scaled.so", "-Wall", "-Werror"]
    subprocess.run(link, cwd=tmp_path, check=True)
    done = subprocess.run(["./main"], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "same\n"


def schedule_rows(n: Any) -> ScheduledTensors:
    """A tile is no higher than the smallest size."""
    rows = n if isinstance(n, int) else min(4, span(n)[0])
    a, b = te.placeholder((n, 6), name="A"), te.placeholder((6, 8), name="B")
    r = te.reduce_axis((0, 6), "r")
    c = te.compute((n, 8), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    local = s.cache_write(c, "local")
    outer, _ = s[c].split(s[c].op.axis[0], rows, tail="clamp")
    s[local].compute_at(s[c], outer)
    s[c].vectorize(s[c].op.axis[1])
    return s, [a, b, c]


def test_the_kernel_of_a_range_runs() -> None:
    kernel = build_for_sizes(schedule_rows, [(1, 1), (2, 2), (3, 3), (4, 20), (21, 64)])
    assert [dict(k.module.sizes) for k in kernel.kernels[-2:]] == [{"n": (4, 20)}, {"n": (21, 64)}]
    for n in (1, 2, 3, 4, 19, 20, 21, 64):
        a, b, c = draw(n, 6), draw(6, 8), np.zeros((n, 8), np.float32)
        assert kernel.of([a, b]) is kernel.kernels[min(n - 1, 3) if n < 21 else 4]
        kernel(a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(kernel.bind([a, b]).run(), a @ b, rtol=1e-4, atol=1e-5)


def test_a_library_multiplies_blocks_of_open_rows() -> None:
    target = registry.get("cpu")
    if "cblas" not in target.limits.features:
        pytest.skip("needs NumPy's BLAS")
    n, r = te.var("n", 1, 9), te.reduce_axis((0, 6), "r")
    a, b = te.placeholder((n * 4, 6), name="A"), te.placeholder((6, 8), name="B")
    size = te.placeholder((n,), name="per_block")
    c = te.compute((n * 4, 8), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    d = te.compute((n * 4, 8), lambda i, j: c[i, j] * size[i // 4], name="D")
    s = te.create_schedule(d.op)
    s[c].tensorize(s[c].split(c.op.axis[0], 4, tail="exact")[1], get_intrinsic("sgemm:4x8x6"))
    kernel = autotune.build(s, [size, a, b, d])
    for blocks in (1, 2, 9):
        scale, left, right = draw(blocks), draw(4 * blocks, 6), draw(6, 8)
        found = kernel.bind([scale, left, right]).run()
        np.testing.assert_allclose(found, left @ right * np.repeat(scale, 4)[:, None], rtol=1e-4, atol=1e-5)


def test_what_no_range_holds_is_refused() -> None:
    kernel = build_for_sizes(schedule_rows, [(1, 1), (4, 20)])
    taken, got = "A[1, 6], B[6, 8] or A[n, 6], B[6, 8], n from 4 to 20", "(3, 6), (6, 8)"
    with pytest.raises(RunError, match=re.escape(f"inputs must be {taken}, but got shapes {got}")):
        kernel.bind([draw(3, 6), draw(6, 8)])
    with pytest.raises(RunError, match="a kernel must be given its 2 inputs"):
        kernel.bind([draw(3, 6)])
    with pytest.raises(RunError, match="a kernel must be given arrays, but got str, which is none"):
        kernel("A", draw(6, 8))
    with pytest.raises(RunError, match="input `A` must be float32"):
        kernel.bind([draw(4, 6).astype(np.float64), draw(6, 8)])


def test_kernels_of_other_arrays_do_not_go_together() -> None:
    with pytest.raises(
        ValueError, match="`kernels` must take the same arrays, float32 A of 2 axes, .* but got float32 X"
    ):
        Dispatch([autotune.build(*schedule_rows(4)), autotune.build(*softmax(""))])
    with pytest.raises(ValueError, match="`kernels` must not be empty, but got none"):
        build_for_sizes(schedule_rows, [])


def test_a_kernel_runs_within_fewer_sizes_than_it_holds_for() -> None:
    kernel = autotune.build(*schedule_rows(te.var("n", 4, 64)))
    low, high = (Within(kernel, {"n": sizes}) for sizes in ((4, 9), (12, 64)))
    both = Dispatch([low, high])
    for n in (4, 9, 12, 64, 9):
        a, b, c = draw(n, 6), draw(6, 8), np.zeros((n, 8), np.float32)
        assert both.of([a, b]) is (low if n < 10 else high)
        both(a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(both.bind([a, b]).run(), a @ b, rtol=1e-4, atol=1e-5)
    with pytest.raises(RunError, match=re.escape("but got shapes (10, 6), (6, 8)")):
        both.bind([draw(10, 6), draw(6, 8)])
    for sizes in ({"n": (3, 9)}, {"n": (9, 65)}, {"n": (9, 8)}, {"m": (4, 9)}):
        with pytest.raises(ValueError, match="`sizes` must be within n from 4 to 64, but got"):
            Within(kernel, sizes)


def test_few_of_many_kernels_are_named() -> None:
    kernel = autotune.build(*schedule_rows(te.var("n", 4, 64)))
    with pytest.raises(RunError, match="n from 7 to 7 or those of 3 more, but got shapes"):
        Dispatch([Within(kernel, {"n": (n, n)}) for n in range(4, 11)]).bind([draw(20, 6), draw(6, 8)])
