"""Buffers of a peeled loop, which its rest allocates, too: at another place in memory where threads share the loop."""

from __future__ import annotations

import numpy as np
import pytest

import autotune
from search_space import te
from search_space.ir.stmt import Allocate, walk_stmt
from search_space.ir.verify import verify
from search_space.schedule.facade import Schedule
from targets.cpu.own_names import with_own_names
from targets.cpu.storage import plan_storage

ROWS, DEPTH, COLUMNS = 4099, 12, 24
rng = np.random.default_rng(0)


def peeled_in_parallel(rows: object, unrolled: bool) -> tuple[Schedule, list[te.Tensor]]:
    """A product whose rows are split among threads four at a time, each tile in a buffer, and three rows are left."""
    r = te.reduce_axis((0, DEPTH), "r")
    a, b = te.placeholder((rows, DEPTH), name="A"), te.placeholder((DEPTH, COLUMNS), name="B")
    c = te.compute((rows, COLUMNS), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    local = s.cache_write(c, "local")
    i, j = s[c].op.axis
    io, ii = s[c].split(i, 4, tail="peel")
    jo, jl = s[c].split(j, 8)
    s[c].reorder(io, jo, ii, jl)
    s[c].parallel(io)
    s[c].vectorize(jl)
    s[local].compute_at(s[c], jo)
    row, column = local.axis
    s[local].reorder(*local.reduce_axis, row, column)
    s[local].vectorize(column)
    if unrolled:
        s[c].unroll(ii)
        s[local].unroll(row)
    return s, [a, b, c]


@pytest.mark.parametrize("unrolled", [False, True])
@pytest.mark.parametrize("is_open", [False, True])
def test_threads_and_what_is_left_do_not_share_a_buffer(is_open: bool, unrolled: bool) -> None:
    s, tensors = peeled_in_parallel(te.var("n", 1, 1 << 13) if is_open else ROWS, unrolled)
    kernel = autotune.build(s, tensors)
    for _ in range(20):  # so many rows that every thread gets some
        a, b = rng.standard_normal((ROWS, DEPTH), np.float32), rng.standard_normal((DEPTH, COLUMNS), np.float32)
        np.testing.assert_allclose(kernel.bind([a, b]).run(2), a @ b, rtol=1e-4, atol=1e-4)


def test_every_allocation_has_a_name_and_a_place_of_its_own() -> None:
    s, tensors = peeled_in_parallel(ROWS, unrolled=False)
    program = autotune.lower(s, tensors)
    apart = with_own_names(program)
    verify(apart)
    assert [n.buffer.name for n in walk_stmt(program.body) if isinstance(n, Allocate)] == ["C.local", "C.local"]
    assert [n.buffer.name for n in walk_stmt(apart.body) if isinstance(n, Allocate)] == ["C.local", "C.local.1"]
    assert with_own_names(apart) is apart
    storage, shared, scratch = plan_storage(apart)
    assert (storage["C.local"].kind, storage["C.local.1"].kind) == ("scratch", "shared")
    assert shared == scratch == 4 * 8 * 4 + 64
    text = str(apart)
    # All after the second allocation is of the second name.
    assert "C.local[" not in text[text.index("alloc C.local.1") :]
