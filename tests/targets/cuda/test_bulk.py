"""The TMA unit: boxes found in loops, copies emulated by bytes and phases, what is forgotten found, their text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from costmodel.features.extractor import FeatureExtractor
from search_space import workloads
from search_space.ir.expr import const
from search_space.ir.stmt import Allocate, Barrier, For, Intrinsic, LoopProgram, Seq, Stmt, walk_stmt, with_pitches
from search_space.lower.blocks import BULK, PIPELINE
from search_space.schedule.steps import Pragma
from search_space.schedule.trace import Trace
from search_space.space import Sketch, generate, make_program
from search_space.workloads import Workload
from targets.base import BufferRef, Module, NetworkPlan, Step
from targets.cuda.bulk import ARRIVE, BEGIN, CONVERGE, COPY, EXPECT, FENCES, is_bulk
from targets.cuda.hardware import GPUS
from targets.cuda.kernel import CudaKernel
from targets.cuda.kernels import device_program
from targets.cuda.network_runner import NetworkRunner
from targets.cuda.nvrtc import compile_ptx
from targets.cuda.program import DeviceProgram, TensorMap
from targets.cuda.program_text import emit_program
from targets.cuda.target import CudaTarget
from tests.gpu.candidates import legal
from tests.targets.cuda.emulator import CopyError, DivergenceError, RaceError, bulk, emulate
from tests.targets.cuda.emulator.races import exchange
from tests.targets.cuda.fake_device import FakeDevice
from tests.targets.cuda.on_host import HostPrograms
from tests.targets.cuda.programs import with_body
from tests.targets.cuda.test_warpgroups import HOPPER, LIMITS, MATMUL, NOTHING, mutants, name_inputs, right, without

ODD = workloads.matmul(m=33, n=136, k=304, dtype="bfloat16", constant_b=False)
BATCH = workloads.batch_matmul(batch=2, m=70, n=40, k=200, dtype="float16")
DENSE = workloads.dense(batch=50, in_features=136, out_features=72, dtype="float16", bias=True)

POINTWISE = workloads.conv2d(2, 6, 8, 256, 88, 1, 1, 0, dtype="float16", bias=True)


def list_sketches(workload: Workload) -> list[Sketch]:
    return [s for s in generate(workload, HOPPER).sketches if BULK in s.name]


def lower_candidate(workload: Workload, sketch: Sketch, name: str = "kernel", seed: int = 0) -> DeviceProgram:
    (row,) = legal(sketch, 1, seed=seed)
    assert LIMITS is not None
    return device_program(make_program(workload, sketch.algorithm, sketch.trace(row)), LIMITS, name)


def of_matmul(stages: int) -> LoopProgram:
    """Two warpgroups, and a reduction of more steps than there are tiles."""
    (sketch,) = (s for s in list_sketches(MATMUL) if s.name == f"direct:wgmma128/{BULK}{stages}")
    rows = legal(sketch, 30)
    columns = list(sketch.columns)
    values = sketch.expand(rows)
    groups, lines = (values[columns.index(f"matmul.{c}")] for c in ("rows.warpgroups", "r.lines"))
    return make_program(MATMUL, "direct", sketch.trace(rows[(groups == 2) & (lines == 1)][0]))


@cache
def product(stages: int) -> DeviceProgram:
    assert LIMITS is not None
    return device_program(of_matmul(stages), LIMITS)


# ---------------------------------------------------------------------- results
@pytest.mark.parametrize("workload", [ODD, BATCH, DENSE, POINTWISE], ids=str)
def test_sketches_copy_boxes_and_compute_the_reference(workload: Workload, tmp_path: Path) -> None:
    """Shapes that no tile divides among them; the text itself on the host, with mbarriers and a unit of its own."""
    programs = []
    for i, sketch in enumerate(list_sketches(workload)):
        program = lower_candidate(workload, sketch, f"k{i}", i)
        (kernel, *_) = program.kernels
        assert [m.buffer for m in kernel.maps] == [spec.name for spec in workload.inputs[:2]], (
            sketch.name,
            str(program),
        )
        if i % 3 == 0:
            assert right(workload, emulate(program, name_inputs(workload))[workload.output.name]), (
                sketch.name,
                str(program),
            )
            programs.append(program)
    if workload is ODD:
        host = HostPrograms(programs[-1:], tmp_path)
        arrays = {**name_inputs(workload), workload.output.name: np.zeros(workload.output.shape, np.float32)}
        host.run(programs[-1], arrays)
        assert right(workload, arrays[workload.output.name])


def test_a_loop_of_one_tile() -> None:
    """The mbarrier changes its phase at every step, and barriers are where they are for other copies."""
    trace = next(s for s in list_sketches(MATMUL) if s.name.endswith("2"))
    (row,) = legal(trace, 1)
    steps = (s for s in trace.trace(row).steps if not (isinstance(s, Pragma) and s.key == PIPELINE))
    assert LIMITS is not None
    program = device_program(make_program(MATMUL, "direct", Trace(tuple(steps))), LIMITS)
    assert len(program.kernels[0].maps) == 2 and program.kernels[0].barriers == 1
    assert right(MATMUL, emulate(program, name_inputs(MATMUL))["matmul"])
    for name in (ARRIVE, COPY):
        for mutant in mutants(program, without(name)):
            with pytest.raises((CopyError, RaceError)):
                emulate(mutant, name_inputs(MATMUL))


# ---------------------------------------------------------------------- which copies are boxes
def test_arrays_that_the_unit_cannot_address_are_copied_by_threads() -> None:
    """Rows further apart: by 656 bytes, which the map says, or by 642, which is no multiple of 16."""
    assert LIMITS is not None
    for pitch, maps in ((328, 2), (321, 1)):
        program = device_program(with_pitches(of_matmul(3), {"a": (pitch, 1)}), LIMITS)
        (kernel,) = program.kernels
        assert len(kernel.maps) == maps and (maps == 1 or kernel.maps[0].strides == (2 * pitch,))
        assert any(isinstance(n, Barrier) and n.proxy for n in walk_stmt(kernel.body)) == (maps == 1)
        assert right(MATMUL, emulate(program, name_inputs(MATMUL))["matmul"])


def test_a_condition_that_is_no_bound_of_the_array_makes_no_box() -> None:
    """The array goes on where the program wants zeros."""
    program = of_matmul(3)
    longer = tuple(replace(b, shape=(const(128), const(320))) if b.name == "a" else b for b in program.params)
    assert LIMITS is not None
    made = device_program(replace(program, params=longer), LIMITS)
    assert [m.buffer for m in made.kernels[0].maps] == ["b"]
    given = name_inputs(MATMUL)
    given["a"] = np.concatenate([given["a"], np.full((8, 320), np.inf, np.float16)])
    assert right(MATMUL, emulate(made, given)["matmul"])


def test_they_are_offered_where_boxes_can_be() -> None:
    for workload in (
        workloads.matmul(m=128, n=128, k=64, dtype="float16"),  # one step
        workloads.matmul(m=128, n=128, k=260, dtype="float16"),  # rows of 520 bytes
        workloads.conv2d(1, 9, 9, 24, 40, 3, 1, 1, dtype="float16"),
        workloads.conv2d(1, 15, 15, 192, 40, 1, 2, 0, dtype="float16"),  # every other pixel
    ):
        assert list_sketches(workload) == [] and any("wgmma" in s.name for s in generate(workload, HOPPER).sketches)
    assert not any(BULK in s.name for s in generate(MATMUL, GPUS["sm_90"], ["direct"]).sketches)


def test_the_estimate_knows_that_no_thread_copies() -> None:
    """The schedule is the same otherwise: never slower, and faster where threads have much to copy."""
    workload = workloads.matmul(m=4096, n=4096, k=4096, dtype="float16")
    found = {s.name: s for s in generate(workload, HOPPER, ["direct"]).sketches if "wgmma64/" in s.name}
    plain, by_unit = found["direct:wgmma64/3"], found[f"direct:wgmma64/{BULK}3"]
    rows = legal(plain, 30)
    values = dict(zip(plain.columns, plain.expand(rows), strict=True))
    same = np.array([values[c] for c in by_unit.columns])
    before, after = (
        FeatureExtractor(s.program, s.columns, HOPPER).roofline(v)
        for s, v in ((plain, plain.expand(rows)), (by_unit, same))
    )
    widest = (values["matmul.left.vector"] == 8) & (values["matmul.right.vector"] == 8)
    assert (after <= before).all() and (after < before)[~widest].any()


@pytest.mark.parametrize("how", ["", BULK])
def test_the_estimate_charges_two_stages_for_products_that_drain_at_every_step(how: str) -> None:
    """Three stages let products of a step go on while the next step's begin; a fourth hides no more of long steps."""
    workload = workloads.matmul(m=4096, n=4096, k=4096, dtype="float16")
    found = {s.name: s for s in generate(workload, HOPPER, ["direct"]).sketches}
    two, three, four = (found[f"direct:wgmma256/{how}{stages}"] for stages in (2, 3, 4))
    rows = legal(four, 30)  # whose tiles take the most memory; of small ones more blocks are there at once with two
    seconds = [FeatureExtractor(s.program, s.columns, HOPPER).roofline(s.expand(rows)) for s in (two, three, four)]
    assert seconds[2].min() <= seconds[1].min() < seconds[0].min()


# ---------------------------------------------------------------------- what is forgotten
def _late(stmt: Stmt) -> Stmt | None:
    """Waits for the other phase, which is over."""
    if not isinstance(stmt, Intrinsic) or stmt.name != ARRIVE:
        return None
    slot, parity = stmt.output.indices
    return replace(stmt, output=replace(stmt.output, indices=(slot, (parity + 1) % 2)))


def _change_count(by: int) -> Callable[[Stmt], Stmt | None]:
    def change(stmt: Stmt) -> Stmt | None:
        name, _, count = stmt.name.partition(":") if isinstance(stmt, Intrinsic) else ("", "", "")
        return replace(stmt, name=f"{name}:{int(count) + by}") if name == EXPECT else None  # type: ignore[type-var]

    return change


def _endless(stmt: Stmt) -> Stmt | None:
    """Asks for tiles of steps that never come."""
    return replace(stmt, predicate=None) if isinstance(stmt, Intrinsic) and stmt.predicate is not None else None


def _no_barrier(stmt: Stmt) -> Stmt | None:
    return NOTHING if isinstance(stmt, Barrier) else None


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without(BEGIN), "must be begun before"),
        (without(EXPECT), "bytes must be awaited before they are asked for"),
        (without(COPY), "awaits 32768 of"),
        (without(ARRIVE), "still copies|must be waited for before"),
        (_late, "still copies|must be waited for before"),
        (_change_count(-128), "awaits 32640 of 32768 bytes"),
        (_change_count(128), "awaits 32896 of 32768 bytes"),
        (_endless, "bytes must be awaited|leaves|awaits"),
        (_no_barrier, "no barrier in between|still multiplies|behind a barrier|be behind all threads"),
        (without("wgmma_wait"), "still multiplies|must not be read before|no barrier in between"),
    ],
    ids=["begin", "expect", "copy", "arrive", "phase", "fewer", "more", "endless", "barrier", "wait"],
)
def test_what_is_left_out_is_found(change: Callable[[Stmt], Stmt | None], message: str, stages: int) -> None:
    program, given = product(stages), name_inputs(MATMUL)
    for mutant in mutants(program, change):
        with pytest.raises((CopyError, RaceError), match=message):
            emulate(mutant, given)


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (FENCES[0], "must be fenced before bytes are awaited, but .* has no bulk_fence_begin"),
        (FENCES[1], "must be fenced before bytes are awaited, but .* has no bulk_fence_proxy"),
        (CONVERGE, "threads of a warp must run wgmma_fence together, but may have come apart"),
    ],
)
def test_fences_and_meeting_points_that_are_left_out_are_found(name: str, message: str, stages: int) -> None:
    for mutant in mutants(product(stages), without(name)):
        with pytest.raises((CopyError, DivergenceError), match=message):
            emulate(mutant, name_inputs(MATMUL))


def test_a_phase_that_begins_while_others_may_still_wait_is_found() -> None:
    """Only the mbarrier tells that a warp is left behind, since no thread reads the tile."""
    program = product(2)
    (kernel,) = program.kernels
    ring = next(n for n in walk_stmt(kernel.body) if isinstance(n, Intrinsic) and n.name == ARRIVE)

    bulks = [
        n
        for n in walk_stmt(kernel.body)
        if isinstance(n, Intrinsic) and is_bulk(n) and n.predicate is None and n.name not in (ARRIVE, CONVERGE)
    ]
    begun = [n for n in bulks if n.name in (BEGIN, *FENCES)]
    asked = [n for n in bulks if n not in begun]
    waiting = replace(ring, output=next(n.output for n in asked if n.name.startswith(EXPECT)))
    slot, parity = waiting.output.indices
    later = replace(waiting.output, indices=(slot, (parity + 1) % 2))
    renewed = [
        replace(n, output=later) if n.name.startswith(EXPECT) else replace(n, inputs=(n.inputs[0], later))
        for n in asked
    ]

    def body(*between: Stmt) -> Stmt:
        stmts = [*begun, Barrier(), *asked, waiting, *between, *renewed, replace(waiting, output=later)]
        out: Stmt = Seq(tuple(stmts))
        for node in reversed(
            [n for n in walk_stmt(kernel.body) if isinstance(n, Allocate) and n.buffer.scope == "shared"]
        ):
            out = replace(node, body=out)
        return out

    emulate(with_body(program, kernel, body(Barrier())), name_inputs(MATMUL))
    with pytest.raises(CopyError, match="a phase must be behind all threads when the next one begins"):
        emulate(with_body(program, kernel, body()), name_inputs(MATMUL))


def test_a_wait_in_a_branch_is_found() -> None:
    def narrow(stmt: Stmt) -> Stmt | None:
        return For("some", const(64), "threadIdx.x", stmt) if is_bulk(stmt) else None

    for mutant in mutants(product(2), narrow):
        with pytest.raises(DivergenceError, match="reached by all threads of a block"):
            emulate(mutant, name_inputs(MATMUL))


def test_a_wrong_map_gives_wrong_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    program, given = product(3), name_inputs(MATMUL)
    (kernel,) = program.kernels
    for change in ({"strides": (624,)}, {"shape": (120, 256)}, {"shape": (64, 320)}):
        a, b = kernel.maps
        wrong = replace(kernel, maps=(replace(a, **change), b))
        assert not right(MATMUL, emulate(replace(program, kernels=(wrong,)), given)["matmul"])
    with pytest.raises(CopyError, match="must hand over one map"):
        emulate(replace(program, kernels=(replace(kernel, maps=kernel.maps[1:]),)), given)
    monkeypatch.setattr(bulk, "swizzle", lambda rows, line: np.arange(rows * line).reshape(rows, line))
    assert not right(MATMUL, emulate(program, given)["matmul"])


def test_boxes_of_an_array() -> None:
    """Outside of the array there are zeros; inside of the tile, every 16 bytes where tensor cores look for them."""
    array = np.arange(2 * 5 * 24, dtype=np.float16).reshape(2, 5, 24) + 1
    described = TensorMap("x", "float16", (2, 5, 20), (240, 48), (1, 8, 64))
    begin = [np.array([1, 0]), np.array([2, -1]), np.array([16, 0])]
    first, second = bulk.make_boxes(described, array.reshape(-1), begin)
    wanted = np.zeros((8, 64), np.float16)
    wanted[:3, :4] = array[1, 2:, 16:20]
    np.testing.assert_array_equal(first, wanted)
    np.testing.assert_array_equal(second[1:6, :20], array[0, :, :20])
    assert not second[0].any() and not second[6:].any() and not second[:, 20:].any()
    np.testing.assert_array_equal(bulk.swizzle(32, 64), exchange(np.arange(32 * 64)).reshape(32, 64))


# ---------------------------------------------------------------------- text, launches
def test_text_compiles() -> None:
    assert emit_program(product(3)).count("copy_box2(") == 1 + 2 * 3  # the function; a, and both halves of b
    program = lower_candidate(BATCH, list_sketches(BATCH)[0])
    ptx = compile_ptx(emit_program(program), "sm_90a")
    for part in (
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
        "mbarrier.try_wait.parity.shared::cta.b64",
        "mbarrier.arrive.expect_tx.shared::cta.b64",
        "fence.mbarrier_init.release.cluster",
    ):
        assert part in ptx
    assert "cp.async.c" not in ptx and ".local" not in ptx  # maps are not copied to the stack
    assert ptx.count(".align 64 .b8") == 2


TARGET = CudaTarget("sm_90a")


@cache
def build_product() -> Module:
    return Module.from_bytes(TARGET.build(of_matmul(3)).to_bytes())


def test_launches_hand_over_maps() -> None:
    (launch,) = build_product().metadata["launches"]["kernels"]
    assert launch["tensor_maps"][0] == {
        "argument": launch["arguments"].index("a"),
        "dtype": "float16",
        "shape": [120, 320],
        "strides": [640],
        "box": [128, 64],
        "swizzle": 128,
    }
    out = CudaKernel(build_product(), FakeDevice(product(3))).bind(MATMUL.make_inputs(0)).run()
    assert right(MATMUL, out)


def test_a_network_with_such_a_kernel(tmp_path: Path) -> None:
    """Maps are made of the addresses that its arrays have when it is loaded."""
    module = build_product()
    a, b = MATMUL.make_inputs(0)
    places = {"a": BufferRef("input", 0), "b": BufferRef("weights", 256), "matmul": BufferRef("output", 0)}
    by_name = {p.name: p for p in module.parameters}
    inputs, outputs = (by_name["a"],), (by_name["matmul"],)
    step = Step(0, tuple(places[p.name] for p in module.parameters))
    plan = NetworkPlan("net", (module,), (step,), inputs, outputs, 256 + b.nbytes, 0)
    manifest = TARGET.link(plan, tmp_path)
    manifest["memory"]["arena_bytes"] = 0
    weights = np.concatenate([np.zeros(256, np.uint8), np.ascontiguousarray(b).view(np.uint8).reshape(-1)])
    cubins = [(tmp_path / item["file"]).read_bytes() for item in manifest["modules"]]
    runner = NetworkRunner(FakeDevice(product(3)), cubins, manifest, weights, inputs, outputs)
    out = np.zeros(MATMUL.output.shape, np.float32)
    runner.upload([a])
    for _ in range(2):  # as launches, and as recorded
        runner.run()
        runner.download([out])
        assert right(MATMUL, out)


def test_printing_names_conditions() -> None:
    (kernel,) = product(2).kernels
    assert "bulk_expect:32768(&matmul.warpgroup.r.0.arrived[(matmul.warpgroup.r.0 + 1) % 2" in str(kernel)
    assert "if matmul.warpgroup.r.0 + 1 < 5" in str(with_body(product(2), kernel, kernel.body))
