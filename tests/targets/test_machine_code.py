"""Machine code read back: loops, products and spills are counted, and the standard kernels spill on no processor."""

from __future__ import annotations

import math
from dataclasses import replace

import llvmlite.binding as llvm
import numpy as np
import pytest

import autotune
from autotune.tuner.search.population import Frame, SeenCandidates
from autotune.tuner.search.sampling import LegalSampler
from autotune.tuner.task import Task
from autotune.tuner.untimed import FEW_SPILLS, select_by_roofline
from measure.errors import ErrorClass, TrialFailure
from measure.executor import KernelExecutor
from measure.pool import Trial
from search_space import te, workloads
from search_space.ir.stmt import LoopProgram
from search_space.lower import lower
from search_space.schedule.steps import Annotate, Split
from search_space.schedule.trace import Trace
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from targets.base import Module
from targets.cpu.machine_code import (
    LoopCode,
    _instructions,
    _warn_of_unread_code,
    body_products,
    busiest,
    innermost_loops,
    spilling,
    table,
)
from targets.cpu.target import MOST_SAVES
from tests.autotune.fakes import settings_with

PROCESSORS = (
    *("haswell", "broadwell", "skylake", "skylake-avx512", "cascadelake", "icelake-server", "alderlake"),
    *("sapphirerapids", "graniterapids", "znver2", "znver3", "znver4", "znver5"),
    *("aarch64:neoverse-n1", "aarch64:neoverse-v1", "aarch64:neoverse-v2", "aarch64:apple-m1"),
)
KERNELS = {
    "product of matrices": workloads.matmul(m=197, n=384, k=1536, constant_b=True),
    "1x1 convolution": workloads.conv2d(height=28, width=28, in_channels=512, out_channels=128, kernel=1, bias=True),
    "3x3 convolution": workloads.conv2d(
        height=28, width=28, in_channels=128, out_channels=128, kernel=3, padding=1, activation="relu"
    ),
    "depthwise convolution": workloads.depthwise_conv2d(height=56, width=56, channels=96, kernel=3, padding=1),
}


def build_choice(workload: Workload, target: str) -> bytes:
    """Object code of what is chosen with no trial."""
    found = select_by_roofline(Task("kernel", workload), settings_with(target=target), algorithms=("direct",))
    return registry.get(target).build(make_program(workload, found.algorithm, found.trace)).object_code


@pytest.mark.parametrize("processor", PROCESSORS)
def test_standard_kernels_keep_their_vectors_in_registers(processor: str) -> None:
    target = registry.get(f"cpu:{processor}")
    for name, workload in KERNELS.items():
        code = build_choice(workload, target.name)
        loop = busiest(innermost_loops(code, target.machine.triple))
        assert loop.products >= 8, (name, loop)
        allowed = FEW_SPILLS if target.hardware.vector_registers == 16 else 0.0
        assert loop.spills <= allowed * loop.instructions, (name, loop)


def test_loops_of_bfloat16_are_read() -> None:
    target = registry.get("cpu:znver4")
    for workload in (
        workloads.matmul(m=64, n=64, k=64, dtype="bfloat16"),
        workloads.batch_matmul(2, 64, 64, 65, dtype="bfloat16"),
    ):
        found = select_by_roofline(Task("kernel", workload), settings_with(target=target.name))
        program = make_program(workload, found.algorithm, found.trace)
        loop = busiest(
            innermost_loops(target.build(program).object_code, target.machine.triple), body_products(program)
        )
        assert loop.products == body_products(program)
        assert loop.products <= loop.instructions - loop.spills
        assert target.spills(program)[0] <= FEW_SPILLS


@pytest.mark.parametrize(("m", "n", "most"), [(66, 16, 1.25), (1, 128, 2.25)])  # with a prefetch each
def test_a_dot_product_reads_from_memory_what_no_other_one_reads(m: int, n: int, most: float) -> None:
    target, workload = registry.get("cpu:znver4"), workloads.matmul(m=m, n=n, k=512, dtype="bfloat16")
    found = select_by_roofline(Task("kernel", workload), settings_with(target=target.name))
    program = make_program(workload, found.algorithm, found.trace)
    loop = busiest(innermost_loops(target.build(program).object_code, target.machine.triple), body_products(program))
    assert loop.products > 8
    assert loop.instructions <= most * loop.products


@pytest.mark.parametrize(
    ("code", "instruction"),
    [
        ("62 f2 4e 48 52 c7", (6, "vdpbf16ps")),
        ("62 f2 4e 58 52 00", (6, "vdpbf16ps")),
        ("62 f2 4e 48 52 44 24 01", (8, "vdpbf16ps")),
        ("62 d2 4e 48 52 44 24 01", (8, "vdpbf16ps")),  # r12
        ("62 f2 4e 48 52 84 24 80 00 00 00", (11, "vdpbf16ps")),
        ("62 f2 4e 48 52 05 80 00 00 00", (10, "vdpbf16ps")),  # relative to rip
        ("62 f2 4e 48 52 04 85 80 00 00 00", (11, "vdpbf16ps")),  # no base
        ("62 f2 7e 48 72 c0", (6, "vcvtneps2bf16")),
        ("62 f1 4e 48 52 c7", None),
        ("62 f2 4e 48 52", None),
        ("62 f2 4e 48 52 44", None),
    ],
)
def test_lengths_of_instructions_on_bfloat16(code: str, instruction: tuple[int, str] | None) -> None:
    behind = list(_instructions(b"\x90" + bytes.fromhex(code), "x86_64"))[1:]
    assert behind == [] if instruction is None else (behind[0][1:3] == instruction and len(behind) == 1)


ACCUMULATE = """
define void @f(ptr %p, ptr %q, i64 %n) {{
entry:
{loads}
  br label %l
l:
  %i = phi i64 [ 0, %entry ], [ %j, %l ]
{phis}
  %x.at = getelementptr <8 x float>, ptr %q, i64 %i
  %x = load <8 x float>, ptr %x.at
{sums}
  %j = add i64 %i, 1
  %c = icmp ult i64 %j, %n
  br i1 %c, label %l, label %d
d:
{stores}
  ret void
}}
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
"""


def accumulating(accumulators: int) -> tuple[bytes, str]:
    """Object code for Haswell of a loop that adds to so many vectors, and its triple."""
    every = range(accumulators)
    vector = "<8 x float>"
    text = ACCUMULATE.format(
        loads="\n".join(
            f"  %p{i} = getelementptr {vector}, ptr %p, i64 {i}\n  %a{i} = load {vector}, ptr %p{i}" for i in every
        ),
        phis="\n".join(f"  %s{i} = phi {vector} [ %a{i}, %entry ], [ %t{i}, %l ]" for i in every),
        sums="\n".join(
            f"  %t{i} = call {vector} @llvm.fma.v8f32({vector} %x, {vector} %x, {vector} %s{i})" for i in every
        ),
        stores="\n".join(f"  store {vector} %t{i}, ptr %p{i}" for i in every),
    )
    machine = registry.get("cpu:haswell").machine
    return machine.emit_object(llvm.parse_assembly(text)), machine.triple


def test_what_has_no_register_is_seen() -> None:
    code, triple = accumulating(12)
    (loop,) = innermost_loops(code, triple)
    assert loop.products == 12 and loop.spills == 0 and 12 < loop.instructions < 20
    code, triple = accumulating(24)
    (loop,) = innermost_loops(code, triple)
    assert loop.products == 24 and loop.spills >= 2 * (24 - 15)
    assert str(loop.spills) in table(code, triple).splitlines()[1].split()


HALF_SUMS = """define void @f(ptr %p, ptr %q, i64 %n) {{
entry:
  %s = alloca <32 x half>, align 64
  br label %l
l:
  %i = phi i64 [ 0, %entry ], [ %j, %l ]
  %sum = phi <32 x half> [ zeroinitializer, %entry ], [ %m, %l ]
  %a = getelementptr half, ptr %p, i64 %i
  %x = load <32 x half>, ptr %a
  %y = load volatile <32 x half>, ptr %s
  %m = call <32 x half> @llvm.fma.v32f16(<32 x half> %x, <32 x half> %y, <32 x half> %sum)
  %z = call <32 x half> @llvm.{between}.v32f16(<32 x half> %x)
  store volatile <32 x half> %z, ptr %s
  %j = add i64 %i, 32
  %d = icmp ult i64 %j, %n
  br i1 %d, label %l, label %e
e:
  store <32 x half> %m, ptr %q
  ret void
}}
declare <32 x half> @llvm.fma.v32f16(<32 x half>, <32 x half>, <32 x half>)
declare <32 x half> @llvm.{between}.v32f16(<32 x half>)
"""


@pytest.mark.parametrize("between", ["floor", "sqrt", "fabs"])
def test_loops_with_products_of_float16_are_read(between: str) -> None:
    machine = registry.get("cpu:sapphirerapids").machine
    code = machine.emit_object(llvm.parse_assembly(HALF_SUMS.format(between=between)))
    (loop,) = innermost_loops(code, machine.triple)
    assert (loop.products, loop.spills, loop.saves) == (1, 2, 1)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_spills_of_float16_are_seen_on_all_processors(dtype: str) -> None:
    a, b = te.placeholder((10, 64), name="a", dtype=dtype), te.placeholder((64, 64), name="b", dtype=dtype)
    k = te.reduce_axis((0, 64), "k")
    c = te.compute(
        (10, 64), lambda i, j: te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k), name="c"
    )
    schedule = te.create_schedule(c.op)
    sums = schedule.cache_write(c, "local")
    i, j = sums.op.axis
    wide, vector = schedule[sums].split(j, factor=16)
    schedule[sums].reorder(*sums.op.reduce_axis, i, wide, vector)
    for stage, loops in ((sums, (i, wide, vector)), (c, (c.op.axis[0], *schedule[c].split(c.op.axis[1], factor=16)))):
        schedule[stage].unroll(loops[0])
        schedule[stage].unroll(loops[1])
        schedule[stage].vectorize(loops[2])
    program = autotune.lower(schedule, [a, b, c])
    shares = [registry.get(f"cpu:{name}").build(program).metadata["spilled"] for name in ("sapphirerapids", "znver5")]
    assert shares[0] == shares[1] > 0.1  # 40 sums have no more than 32 registers


def test_code_that_cannot_be_read_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    _warn_of_unread_code.cache_clear()
    nothing_and_unknown = bytes.fromhex("90d51889c4")
    assert [name for *_, name, _ in _instructions(nothing_and_unknown, "x86_64")] == ["nop"]
    assert list(_instructions(nothing_and_unknown[1:], "x86_64")) == []
    assert caplog.text.count("cannot be read") == 1


def full_blocks(workload: Workload, target: str, vectors: int | None = None, count: int = 8) -> list[LoopProgram]:
    """Programs of random candidates whose sums take most of the registers that the space allows."""
    space = generate(workload, registry.get(target).hardware, ("direct",))
    sampled = LegalSampler(Frame(space), SeenCandidates(), np.random.default_rng(0)).spread(
        np.full(len(space.sketches), 200, np.int64)
    )
    found = []
    for candidate in Frame(space).candidates(sampled):
        values = space.sketches[candidate.sketch].values(candidate.choices)
        tile = {name: int(n) for name, n in values.items() if name.endswith((".tile", ".vectors"))}
        wide = [n for name, n in tile.items() if name.endswith(".vectors")]
        if math.prod(tile.values()) >= 11 and (vectors is None or wide == [vectors]):
            found.append(space.program(candidate))
    return found[:count]


@pytest.mark.parametrize("name", ["product of matrices", "1x1 convolution"])
def test_blocks_that_fill_sixteen_registers_do_not_spill(name: str) -> None:
    target = registry.get("cpu:haswell")
    programs = full_blocks(KERNELS[name], target.name, vectors=1) + full_blocks(KERNELS[name], target.name)
    assert len(programs) == 16
    for program in programs:
        loop = busiest(innermost_loops(target.build(program).object_code, target.machine.triple))
        assert loop.products >= 11 and loop.spills == 0, (program, loop)


def test_what_is_broadcast_as_it_is_read_takes_no_instruction() -> None:
    target = registry.get("cpu:skylake-avx512")
    for program in full_blocks(KERNELS["product of matrices"], target.name, vectors=1, count=3):
        loop = busiest(innermost_loops(target.build(program).object_code, target.machine.triple))
        assert loop.spills == 0 and loop.instructions < 1.5 * loop.products, (program, loop)


@pytest.mark.parametrize("processor", ["znver4", "cooperlake", "sapphirerapids"])
def test_dot_products_of_bfloat16_are_seen_and_read_their_broadcast_factor_from_memory(processor: str) -> None:
    target = registry.get(f"cpu:{processor}")
    space = generate(workloads.matmul(m=64, n=64, k=64, dtype="bfloat16", constant_b=True), target.hardware)
    wanted = {"matmul.i.tile": 8, "matmul.j.vectors": 1, "matmul.r.unroll": 4}
    sketch = space.sketches[0]
    rows = [
        [i for i, row in enumerate(g.table) if all(wanted.get(c, v) == v for c, v in zip(g.columns, row, strict=True))]
        for g in sketch.groups
    ]
    choices = np.array([[row[0] for row in rows]], np.int32)
    assert sketch.legal(choices).all()
    program = make_program(space.workload, sketch.algorithm, sketch.trace(choices[0]))
    loop = busiest(innermost_loops(target.build(program).object_code, target.machine.triple))
    assert loop.products == body_products(program) == 32
    assert loop.spills == 0 and loop.instructions <= 1.4 * loop.products, loop


def test_only_machines_whose_products_write_over_factors_are_told_of_last_uses() -> None:
    for processor, told in (("haswell", True), ("aarch64:neoverse-n1", False)):
        target = registry.get(f"cpu:{processor}")
        (program,) = full_blocks(KERNELS["product of matrices"], target.name, count=1)
        assert ("llvm.fake.use" in target.build(program).llvm_ir) == told


def test_only_innermost_loops_count() -> None:
    program = make_program(*_schedule(KERNELS["product of matrices"]))
    module = registry.get("cpu:skylake-avx512").build(program)
    loops = innermost_loops(module.object_code, module.metadata["triple"])
    assert all(loop.instructions < 2000 for loop in loops)
    assert busiest(loops).products >= 16
    loop = busiest(loops, body_products(program))
    assert module.metadata["spilled"] == round(loop.spills / loop.instructions, 4)
    assert module.metadata["saves_a_product"] == round(loop.saves / loop.products, 4)
    assert busiest([]) == LoopCode(0, 0, 0, 0)


def _schedule(workload: Workload):
    found = select_by_roofline(
        Task("kernel", workload), settings_with(target="cpu:skylake-avx512"), algorithms=("direct",)
    )
    return workload, found.algorithm, found.trace


def test_other_architectures_are_refused() -> None:
    code, _ = accumulating(1)
    with pytest.raises(ValueError, match="machine code must be for one of x86_64"):
        innermost_loops(code, "riscv64-unknown-linux-gnu")


def test_records_tell_what_spills() -> None:
    workload = KERNELS["depthwise convolution"]
    found = select_by_roofline(Task("kernel", workload), settings_with())
    target = registry.get("cpu")
    module = target.build(make_program(workload, found.algorithm, found.trace))
    inputs = workload.make_inputs(seed=0)
    bound = target.load(module).bind(inputs)
    assert ("spilled" in bound.metrics()) == (module.metadata["spilled"] > 0)
    np.testing.assert_allclose(bound.run(), workload.reference(*inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("processor", ["haswell", "znver4", "aarch64:neoverse-n1"])
@pytest.mark.parametrize("algorithm", ["direct", "winograd2"])
def test_products_of_a_reduction_are_known_from_its_program(processor: str, algorithm: str) -> None:
    target = registry.get(f"cpu:{processor}")
    workload = workloads.conv2d(height=12, width=12, in_channels=32, out_channels=32, kernel=3, padding=1)
    rng, found = np.random.default_rng(0), 0
    for sketch in generate(workload, target.hardware, (algorithm,)).sketches:
        choices = np.stack([rng.integers(0, len(g.table), 60) for g in sketch.groups], axis=1).astype(np.int32)
        legal = choices[sketch.legal(choices)]
        if not len(legal) or found == 3:
            continue
        found += 1
        program = make_program(workload, algorithm, sketch.trace(legal[0]))
        loops = innermost_loops(target.build(program).object_code, target.machine.triple)
        products = body_products(program)
        assert products in {loop.products for loop in loops}, (products, loops)
        assert busiest(loops, products).products == products
    assert found


def test_of_loops_with_the_products_of_the_reduction_the_shortest_is_meant() -> None:
    body, transform, long = LoopCode(40, 24, 0, 0), LoopCode(200, 24, 90, 0), LoopCode(900, 300, 0, 0)
    assert busiest([transform, long, body], 24) == body and busiest([transform, long, body], 23) == body
    assert busiest([transform, long, body]) == long
    assert body_products(make_program(*_schedule(workloads.softmax(rows=8, columns=64)))) is None


def test_the_loops_of_all_sums_of_products_count_by_their_products() -> None:
    inputs = [te.placeholder(shape, name=name) for name, shape in (("a", (32, 16)), ("b", (16, 64)), ("c", (64, 32)))]
    (a, b, c), (r, q) = inputs, (te.reduce_axis((0, n), n_) for n, n_ in ((16, "r"), (64, "q")))
    first = te.compute((32, 64), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="first")
    second = te.compute((32, 32), lambda i, j: te.sum(first[i, q] * c[q, j], axis=q), name="second")
    s = te.create_schedule(second.op)
    for stage, unroll in (("first", 8), ("second", 4)):
        s.apply(Split(stage, "r" if stage == "first" else "q", (unroll,), "exact"))
        s.apply(Annotate(stage, "r.1" if stage == "first" else "q.1", "unroll"))
    program = lower(s.state)
    clean, spilt, other = LoopCode(20, 8, 0, 0), LoopCode(40, 4, 20, 0, 8), LoopCode(30, 0, 10, 0)
    # The second has twice the products of the first: 32 x 32 x 64 beside 32 x 64 x 16.
    assert spilling([other, clean, spilt], program) == (pytest.approx(2 / 3 * 0.5), pytest.approx(2 / 3 * 2))
    assert spilling([other, clean, LoopCode(20, 4, 0, 0)], program) == (0.0, 0.0)
    assert spilling([], program) == (0.0, 0.0)


def test_without_a_sum_of_products_the_longest_loop_is_meant() -> None:
    program = make_program(*_schedule(workloads.softmax(rows=8, columns=64)))
    assert spilling([LoopCode(20, 0, 2, 0), LoopCode(40, 0, 4, 0)], program) == (0.1, 0.0)


def overfull() -> tuple[Workload, Module]:
    """A product whose tile needs several times the registers that there are, built for this host."""
    workload, target = workloads.matmul(m=28, n=128, k=32, constant_b=True), registry.get("cpu")
    sketch = generate(workload, target.hardware, ("direct",)).sketches[0]
    choices = np.array([np.argmax(g.table[:, -1]) for g in sketch.groups], np.int32)
    assert not sketch.legal(choices[None])[0]
    return workload, target.build(make_program(workload, "direct", sketch.trace(choices)))


def test_what_spills_is_not_timed_where_another_candidate_has_been() -> None:
    workload, module = overfull()
    target, executor = registry.get("cpu"), KernelExecutor()
    assert module.metadata["saves_a_product"] > MOST_SAVES
    assert "at most 0.125 vectors to the stack for each product" in target.refusal(module)
    good = target.build(make_program(*_schedule(KERNELS["depthwise convolution"])))
    assert target.refusal(good) == ""
    trial = Trial.of(workload, "direct", Trace(()))
    task = executor.prepare(trial, reference=False)
    bound = executor.bind(trial, module.to_bytes(), task, 1)  # nothing else has been timed: better than no candidate
    np.testing.assert_allclose(bound.run(), workload.reference(*task.inputs), rtol=1e-4, atol=1e-4)
    with pytest.raises(TrialFailure, match="at most 0.125 vectors to the stack for each product") as refused:
        executor.bind(replace(trial, best_seconds=1e-3), module.to_bytes(), task, 1)
    assert refused.value.error is ErrorClass.compile


def test_weights_that_are_only_read_from_the_stack_are_timed() -> None:
    layer = workloads.depthwise_conv2d(height=56, width=56, channels=72, kernel=5, stride=2, padding=2)
    target = registry.get("cpu:skylake-avx512")
    sketch = next(
        s for s in generate(layer, target.hardware).sketches if s.name.endswith("h.1>w.0>c.1/rw>rh/pad_inline")
    )
    program = make_program(layer, sketch.algorithm, sketch.trace((0, 10, 0, 1, 0)))
    module = target.build(program)
    loop = busiest(innermost_loops(module.object_code, target.machine.triple), body_products(program))
    assert loop.spills > 0.25 * loop.products and loop.saves < 0.05 * loop.products
    assert target.refusal(module) == ""


@pytest.mark.parametrize("rows", [10, 13])
def test_sums_of_broadcast_factors_stay_in_their_registers(rows: int) -> None:
    workload, target = workloads.matmul(m=rows, n=8, k=64, constant_b=True), registry.get("cpu:haswell")
    sketch = generate(workload, target.hardware, ("direct",)).sketches[0]
    wanted = {"matmul.i.tile": rows, "matmul.j.vectors": 1, "matmul.r.unroll": 8}
    choices = [
        next(
            i
            for i, row in enumerate(g.table)
            if all(wanted.get(c, v) == v for c, v in zip(g.columns, row, strict=True))
        )
        for g in sketch.groups
    ]
    module = target.build(make_program(workload, "direct", sketch.trace(np.array(choices, np.int32))))
    loop = busiest(innermost_loops(module.object_code, target.machine.triple))
    assert loop.products == 8 * rows and loop.spills == 0 and loop.instructions <= 2.4 * loop.products
    if "avx2" in registry.get("cpu").hardware.features:
        inputs = workload.make_inputs(seed=0)
        found = target.load(module).bind(inputs).run()
        np.testing.assert_allclose(found, workload.reference(*inputs), rtol=1e-4, atol=1e-4)
