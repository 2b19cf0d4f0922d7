"""Loop programs to streams: exact and free of races for random candidates; what has no instruction is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_space import workloads
from search_space.ir.expr import Expr, cast, const, eq, lift, load, logical_and, minimum, select, var
from search_space.ir.stmt import Allocate, Buffer, For, Intrinsic, LoopProgram, Operand, Seq, Stmt, Store
from search_space.space import make_program
from search_space.workloads import Workload
from targets.base import BuildError
from targets.vta import emit as emitting
from targets.vta.emit import emit
from targets.vta.hardware import PYNQ
from targets.vta.nests import Interval, Nest, bounds, integer
from targets.vta.target import VtaTarget, get_target
from targets.vta.transfers import Dimension, transfers
from tests.targets.vta.candidates import build_candidate, check, draw, sketches

conv = workloads.conv2d_blocked
CASES: tuple[tuple[str, Workload], ...] = (
    ("vta", conv(7, 9, 32, 64, padding=1, relu=True)),
    ("vta", conv(9, 7, 32, 32, kernel=3, stride=2, padding=1)),
    ("vta", conv(5, 5, 16, 48, kernel=1, bias=False)),
    ("vta", conv(6, 6, 16, 16, kernel=(5, 1), padding=(2, 0), shift=3)),
    ("vta", conv(3, 3, 16, 16)),
    ("vta", conv(3, 3, 16, 16, kernel=1, padding=2, stride=2)),
    ("vta", workloads.dense_blocked(4, 64, 96)),
    ("vta", workloads.dense_blocked(1, 32, 16, bias=False, relu=True)),
    ("vta:2x8x4", conv(7, 6, 16, 8, batch=4, padding=1, block=(2, 4, 8))),
    ("vta:4x8x8", conv(5, 5, 16, 16, batch=8, padding=1, stride=2, block=(4, 8, 8))),
    ("vta:1x4x8", conv(6, 5, 8, 16, padding=1, block=(1, 8, 4))),
)


@pytest.mark.parametrize(("name", "workload"), CASES, ids=str)
def test_random_candidates_are_exact_and_free_of_races(name: str, workload: Workload) -> None:
    target, rng = get_target(name), np.random.default_rng(0)
    found = sketches(workload, target)
    assert found
    for sketch in found:
        for _ in range(2):
            check(workload, build_candidate(workload, sketch, draw(sketch, rng), target), target)


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_convolutions_of_any_window_and_block(data: st.DataObject) -> None:
    batch, ins, outs = (data.draw(st.sampled_from([1, 2, 4]), what) for what in ("batch", "ins", "outs"))
    kernel, stride = data.draw(st.integers(1, 3), "kernel"), data.draw(st.integers(1, 2), "stride")
    padding = data.draw(st.integers(0, kernel - 1), "padding")
    height, width = (data.draw(st.integers(kernel, 7), what) for what in ("height", "width"))
    blocks = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3)), "blocks")
    workload = conv(
        height,
        width,
        blocks[1] * ins,
        blocks[2] * outs,
        blocks[0] * batch,
        kernel,
        stride,
        padding,
        shift=data.draw(st.integers(0, 8), "shift"),
        bias=data.draw(st.booleans(), "bias"),
        relu=data.draw(st.booleans(), "relu"),
        block=(batch, outs, ins),
    )
    target = VtaTarget(PYNQ.with_blocks(batch, ins, outs), "test")
    sketch = data.draw(st.sampled_from(sketches(workload, target)), "sketch")
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 16), "seed"))
    check(workload, build_candidate(workload, sketch, draw(sketch, rng), target), target)


def test_micro_operations_that_do_not_fit_at_once_are_loaded_when_they_are_needed() -> None:
    target = VtaTarget(replace(PYNQ, log_uop_buffer=6), "few")  # 16 micro-operations
    workload = conv(6, 6, 16, 32, kernel=2)
    (sketch, *_), rng, fetched = sketches(workload, target), np.random.default_rng(1), []
    for _ in range(12):
        choices = draw(sketch, rng)
        module = build_candidate(workload, sketch, choices, target)
        check(workload, module, target)
        fetched.append(target.assembly(module).count("LOAD.UOP"))
    assert max(fetched) > 1


def test_virtual_threads_share_nothing_they_would_wait_for() -> None:
    """Copies of the second thread come while the first multiplies, and those of the next tile during the epilogue."""
    workload = conv(16, 16, 32, 16, padding=1, relu=True)
    target = get_target("vta")
    sketch = sketches(workload, target)[0]
    tiles = {"out.h.tile": 4, "out.w.threads": 1, "out.w.tile": 16, "out.rc.tile": 1}
    timing = {}
    for threads in (1, 2):
        values = {name: {**tiles, "out.h.threads": threads}.get(name, 1) for name in sketch.columns}
        kernel = target.load(target.build(make_program(workload, "direct", sketch.steps.substitute(values))))
        timing[threads] = kernel.timing
        load, compute = (np.flatnonzero(kernel.timing.module == module) for module in (0, 1))
        busy = np.array(
            [[kernel.timing.start[i], kernel.timing.end[i]] for i in compute if kernel.table[i, 0] in (2, 4)]
        )
        over = [((busy[:, 0] < kernel.timing.end[i]) & (busy[:, 1] > kernel.timing.start[i])).any() for i in load]
        assert np.mean(over) > 0.6 if threads == 2 else np.mean(over) < 0.6
    assert timing[2].cycles < 0.95 * timing[1].cycles


# ------------------------------------------------------------------ what is refused
def buffer(name: str, shape: Sequence[int], dtype: str = "int8", scope: str = "global") -> Buffer:
    return Buffer(name, tuple(const(n) for n in shape), dtype, scope)


def loops(body: Stmt, **extents: int) -> Stmt:
    for name, extent in reversed(extents.items()):
        body = For(name, const(extent), "serial", body)
    return body


X, OUT = buffer("x", (4, 1, 16)), buffer("out", (4, 1, 16))
W = buffer("w", (4, 16, 16))
i, j, lane, m = (var(name) for name in ("i", "j", "lane", "m"))
zero = const(0)
INPUT, WEIGHT = buffer("x.input", (4, 1, 16), scope="input"), buffer("w.weight", (4, 16, 16), scope="weight")
ACC, BIAS = (buffer(name, (4, 1, 16), "int32", "accumulator") for name in ("acc", "bias"))


def program(*body: Stmt, chip: Sequence[Buffer] = (), params: Sequence[Buffer] = (X, W, OUT)) -> LoopProgram:
    whole: Stmt = Seq(tuple(body))
    for each in reversed(chip):
        whole = Allocate(each, whole)
    return LoopProgram("test", tuple(params), whole, ("out",))


def copy_in(value: Expr, at: Sequence[Expr] = (i, zero, lane), extents: dict[str, int] | None = None) -> LoopProgram:
    store = loops(Store("x.input", tuple(at), value), **(extents or {"i": 4, "lane": 16}))
    return program(store, chip=[INPUT])


def plain(name: str = "x", at: Sequence[Expr] = (i, zero, lane), dtype: str = "int8") -> Expr:
    return load(name, at, dtype)


def copy_out(value: Expr, chip: Sequence[Buffer] = (ACC,)) -> LoopProgram:
    return program(loops(Store("out", (i, zero, lane), value), i=4, lane=16), chip=chip)


def tile(name: str, *at: Expr) -> Operand:
    return Operand(name, tuple(at), tuple(at))


def multiply(call: Intrinsic, chip: Sequence[Buffer] = (INPUT, WEIGHT, ACC)) -> LoopProgram:
    return program(loops(call, i=4), chip=chip)


PRODUCT = Intrinsic(
    "gemm_tile:1x16x16", tile("acc", i, zero, zero), (tile("x.input", i, zero, zero), tile("w.weight", i, zero, zero))
)
SUM = load("acc", (i, zero, lane), "int32")
LONG = buffer("x", (40, 1, 16))
REFUSED_PROGRAMS: dict[str, tuple[Callable[[], LoopProgram], str]] = {
    "pitches": (lambda: program(params=[replace(X, pitches=(32, 16, 1)), OUT]), "`x` must be dense, but got pitches="),
    "scope": (lambda: program(chip=[buffer("b", (16,), scope="local")]), "must be in input, weight, accumulator, but"),
    "part of an element": (
        lambda: program(chip=[buffer("b", (24,), scope="input")]),
        "whole elements of 16, but got b",
    ),
    "memory": (lambda: program(chip=[buffer("b", (2049, 16), scope="input")]), "input memory of 2048 elements.*2049"),
    "two of a name": (
        lambda: program(*(Allocate(buffer("b", (16 * n,), scope="input"), Seq(())) for n in (1, 2))),
        "two are called b",
    ),
    "a reduction": (
        lambda: program(loops(Store("acc", (i, zero, lane), SUM, "sum"), i=4, lane=16), chip=[ACC]),
        "a nest must copy, set to zero, multiply tiles or end in memory",
    ),
    "no iterations": (
        lambda: copy_in(plain(), extents={"i": 0, "lane": 16}),
        "a loop must run at least once, but got i",
    ),
    "what is padded": (lambda: copy_in(select(i < 2, plain(), const(1, "int8"))), "padding must be zeros, but got 1"),
    "a sum that is copied": (lambda: copy_in(plain() + const(1, "int8")), "copied to the chip must be a tensor"),
    "chip to chip": (
        lambda: program(
            loops(Store("b", (i, zero, lane), plain("x.input")), i=4, lane=16), chip=[INPUT, replace(INPUT, name="b")]
        ),
        "copied to the chip must be a tensor in memory",
    ),
    "dtype of a copy": (
        lambda: program(
            loops(Store("acc", (i, zero, lane), plain("y", dtype="int8")), i=4, lane=16),
            chip=[ACC],
            params=[buffer("y", (4, 1, 16)), OUT],
        ),
        "a copy must keep its dtype, but got int8 to int32",
    ),
    "an index of data": (
        lambda: copy_in(plain(at=(load("n", (i,), "int64"), zero, lane))),
        "made of integer arithmetic",
    ),
    "a bent index": (lambda: copy_in(plain(at=(i // 2, zero, lane))), "the index of a copy must be a sum of multiples"),
    "half an element": (lambda: copy_in(plain(), extents={"i": 4, "lane": 8}), "copied whole, but the loops cover 8"),
    "an element turned": (
        lambda: copy_in(plain(at=(lane, zero, i)), extents={"i": 4, "lane": 4}),
        "an element of 16 must be copied whole, but loop lane steps by 1 and 16",
    ),
    "elements that overlap": (
        lambda: copy_in(load("flat", (i * 8 + lane,), "int8")),
        "places must be multiples of an element of 16, but got 8",
    ),
    "gaps on the chip": (
        lambda: copy_in(plain(), at=(i * 2, zero, lane), extents={"i": 2, "lane": 16}),
        "a copy must be dense on the chip, but a loop steps by 2 where 1 follow",
    ),
    "padding by equality": (
        lambda: copy_in(select(eq(i, 1), plain(), const(0, "int8"))),
        "padding must be bounded by comparisons",
    ),
    "padding by two loops": (
        lambda: copy_in(select(i + lane < 5, plain(), const(0, "int8"))),
        "padding must be bounded loop by loop",
    ),
    "a part of an element padded": (
        lambda: copy_in(select(lane < 8, plain(), const(0, "int8"))),
        "padding must be of whole elements, but loop lane is cut off",
    ),
    "much padding": (
        lambda: program(
            loops(Store("b", (i, zero, lane), select(i < 20, plain(), const(0, "int8"))), i=40, lane=16),
            chip=[buffer("b", (40, 1, 16), scope="input")],
            params=[LONG, OUT],
        ),
        "padding must be at most 15 on a side, but got 20",
    ),
    "another tile": (
        lambda: multiply(replace(PRODUCT, name="gemm_tile:2x8x8")),
        "products must be of 1x16x16, but got gemm_tile:2x8x8",
    ),
    "a product that resets": (
        lambda: multiply(replace(PRODUCT, reset=True)),
        "products must be added to what is there",
    ),
    "an operand in memory": (
        lambda: multiply(replace(PRODUCT, inputs=(tile("x", i, zero, zero), PRODUCT.inputs[1]))),
        "`x` must be in the input memory",
    ),
    "the wrong memory": (
        lambda: multiply(replace(PRODUCT, inputs=PRODUCT.inputs[::-1])),
        "`w.weight` must be in the input memory",
    ),
    "a tile in another order": (
        lambda: multiply(PRODUCT, [INPUT, buffer("w.weight", (4, 8, 32), scope="weight"), ACC]),
        r"`w.weight` must end in a tile of \(16, 16\), but got \(8, 32\)",
    ),
    "int32 out": (
        lambda: program(
            loops(Store("y", (i, zero, lane), SUM), i=4, lane=16),
            chip=[ACC],
            params=[X, OUT, buffer("y", (4, 1, 16), "int32")],
        ),
        "what goes out must be cast to int8, but got int32",
    ),
    "input to output": (
        lambda: copy_out(cast(load("x", (i, zero, lane), "int8"), "int32").astype("int8"), []),
        "must be",
    ),
    "a quotient": (lambda: copy_out((SUM // 3).astype("int8")), "must be min, max, add, multiply or shift, but got"),
    "a large number": (lambda: copy_out((SUM + 40_000).astype("int8")), "must fit 16 bits, but got 40000"),
    "two sums": (
        lambda: copy_out(((SUM >> 1) * (load("bias", (i, zero, lane), "int32") >> 1)).astype("int8"), [ACC, BIAS]),
        "the second operand must be a number or in the accumulator",
    ),
    "an operand in DRAM": (
        lambda: copy_out((SUM + load("y", (i, zero, lane), "int32")).astype("int8")),
        "what goes out must be in the accumulator, but got",
    ),
}


@pytest.mark.parametrize("name", REFUSED_PROGRAMS)
def test_what_no_instruction_does_is_refused(name: str) -> None:
    make, message = REFUSED_PROGRAMS[name]
    with pytest.raises(BuildError, match=message):
        emit(with_odd_parameters(make()), PYNQ)


def with_odd_parameters(program: LoopProgram) -> LoopProgram:
    """Buffers that only some programs read."""
    extra = [buffer("n", (4,), "int64"), buffer("flat", (64,)), buffer("y", (4, 1, 16), "int32")]
    named = {b.name for b in program.params}
    return replace(program, params=(*program.params, *(b for b in extra if b.name not in named)))


def test_indices_of_every_operation() -> None:
    value = select(logical_and(i < 3, j >= 1), minimum(i * 2 - j, 7) + lift(5) % 3, (i + j) // 2)
    function = integer(value)
    for a in range(5):
        for b in range(3):
            assert function({"i": a, "j": b}) == (min(a * 2 - b, 7) + 2 if a < 3 and b >= 1 else (a + b) // 2)


def test_a_stream_must_not_be_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitting, "MOST_INSTRUCTIONS", 8)
    with pytest.raises(BuildError, match="at most 8 instructions"):
        emit(
            program(*(loops(Store("x.input", (i, zero, lane), plain()), i=4, lane=16) for _ in range(9)), chip=[INPUT]),
            PYNQ,
        )


def test_a_number_outside_of_loops_is_no_padding() -> None:
    nest = Nest((), (), Seq(()), {"m": np.array([[0], [1]])}, 2)
    assert bounds([m < 2], nest).shape == (2, 0, 2)
    with pytest.raises(BuildError, match="a copy of one number must not be padding, but m < 1 does not hold"):
        bounds([m < 1], nest)


def test_a_transfer_fits_its_fields() -> None:
    with pytest.raises(BuildError, match="a transfer must be at most 65535 wide and high, but got 65536 x 1"):
        list(transfers([Dimension(1 << 16, 1, 1, Interval(0, 1 << 16))], 0, 0))


def test_a_program_of_packed_constants_is_refused() -> None:
    target = get_target("vta")
    packed = replace(program(), prologues=(program(),), sources=(X, W))
    with pytest.raises(BuildError, match="constants must be as the workload gives them"):
        target.build(packed)
