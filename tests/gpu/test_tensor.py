"""Products by tensor cores: the layouts of their fragments, and sketches that compute the reference."""

from __future__ import annotations

import pytest

from search_space import te, te_json, workloads
from search_space.ir.expr import const
from search_space.ir.stmt import Intrinsic, walk_stmt
from search_space.schedule.intrinsics import Fragment, TensorIntrin
from search_space.space import generate, make_program
from search_space.warp_intrinsics import MMAS, SUMS, Mma, mma_for
from search_space.workloads import Workload
from tests.gpu.candidates import check, legal
from tests.gpu.machines import H200

SMALL: tuple[tuple[Workload, str], ...] = (
    (workloads.matmul(m=32, n=16, k=32, dtype="float16"), "direct"),
    (workloads.matmul(m=13, n=7, k=41, dtype="bfloat16"), "direct"),
    (workloads.matmul(m=5, n=24, k=256, dtype="float16"), "direct"),
    (workloads.matmul(m=20, n=12, k=64, dtype="int8"), "direct"),
    (workloads.batch_matmul(batch=3, m=17, n=10, k=16, dtype="float16"), "direct"),
    (workloads.dense(batch=1, in_features=48, out_features=40, dtype="bfloat16", bias=True), "direct"),
    (workloads.conv2d(1, 5, 5, 16, 12, 3, 1, 1, dtype="float16", bias=True, activation="relu"), "im2col"),
    (workloads.conv2d(1, 4, 4, 32, 12, 3, 2, 1, dtype="int8", bias=True, activation="relu"), "im2col"),
    (workloads.matmul(m=29, n=12, k=19, dtype="tfloat32"), "direct"),
    (workloads.conv2d(1, 5, 5, 8, 12, 3, 1, 1, dtype="tfloat32", bias=True, activation="relu"), "im2col"),
)


def lane_and_register(fragment: Fragment, row: int, column: int) -> tuple[int, int]:
    """Lane and register of an element."""
    at = const(row), const(column)
    return int(fragment.lane(*at).value), int(fragment.register(*at).value)


@pytest.mark.parametrize("mma", MMAS, ids=lambda m: m.product.name)
def test_lanes_hold_every_element_once(mma: Mma) -> None:
    def fragments(intrinsic: TensorIntrin) -> list[Fragment]:
        return [f for f in intrinsic.fragments if f is not None]

    for fragment in (*fragments(mma.left), *fragments(mma.right), *fragments(mma.product)):
        rows, columns = fragment.shape
        found = {lane_and_register(fragment, i, j) for i in range(rows) for j in range(columns)}
        assert found == {(lane, r) for lane in range(32) for r in range(fragment.registers)}


def test_layouts_are_those_of_the_ptx_manual() -> None:
    """Rows and columns of a0..a7, b0..b3 and c0..c3 of mma.m16n8k16, as the PTX ISA gives them by lane."""
    left, right, _ = MMAS[0].product.fragments
    assert left is not None and right is not None
    for lane in range(32):
        group, within = lane // 4, lane % 4
        for i in range(8):
            row = group if i in (0, 1, 4, 5) else group + 8
            column = within * 2 + (i & 1) + (8 if i >= 4 else 0)
            assert lane_and_register(left, row, column) == (lane, i)
        for i in range(4):
            assert lane_and_register(right, within * 2 + (i & 1) + (8 if i >= 2 else 0), group) == (lane, i)
            assert lane_and_register(SUMS, group if i < 2 else group + 8, within * 2 + (i & 1)) == (lane, i)


def test_layouts_of_tfloat32_are_those_of_the_ptx_manual() -> None:
    """Rows and columns of a0..a3 and b0, b1 of mma.m16n8k8 with .tf32."""
    mma = mma_for(H200, "tfloat32", "tfloat32", "float32")
    assert (
        mma is not None
        and mma.product.name == "mma_m16n8k8_tfloat32_tfloat32"
        and mma.register_dtypes == ("float32",) * 3
    )
    left, right, _ = mma.product.fragments
    assert left is not None and right is not None
    for lane in range(32):
        group, within = lane // 4, lane % 4
        for i in range(4):
            assert lane_and_register(left, group + 8 * (i & 1), within + 4 * (i >> 1)) == (lane, i)
        for i in range(2):
            assert lane_and_register(right, within + 4 * i, group) == (lane, i)


@pytest.mark.parametrize(("workload", "algorithm"), SMALL, ids=str)
def test_candidates_mean_the_reference(workload: Workload, algorithm: str) -> None:
    found = generate(workload, H200, [algorithm]).sketches
    assert found and all("tensor" in s.name for s in found)
    for i, sketch in enumerate(found):
        for row in legal(sketch, 2, seed=i):
            program = check(workload, sketch, row)
            assert any(isinstance(s, Intrinsic) and s.name.startswith("mma_") for s in walk_stmt(program.body))


def test_a_vector_with_an_ending_is_a_tile_as_it_is_without_one() -> None:
    """The ending may say in any way which row it reads: there is one."""
    layer, bias = te.placeholder((1, 40), "int32", "layer"), te.placeholder((40,), "int32", "y0", True)
    ending = te.compute((1, 40), lambda i, j: layer[0, j] + bias[j], name="add")
    anchor = workloads.matmul(m=1, n=40, k=48, dtype="int8", constant_b=True)
    workload = Workload("fused", {"anchor": anchor.to_json(), "epilogue": te_json.to_json([layer, bias, ending])})
    found, plain = (generate(w, H200).sketches for w in (workload, anchor))
    assert [sketch.name for sketch in found] == [sketch.name for sketch in plain]
    check(workload, found[0], legal(found[0], 1)[0])


def test_a_vector_whose_ending_reads_row_0_in_another_shape_is_left_to_other_rules() -> None:
    *inputs, product = workloads.matmul(m=1, n=40, k=48, dtype="int8", constant_b=True).tensors()
    ending = te.compute((1, 1, 40), lambda z, i, j: product[0, j] * 2, name="double")
    workload = Workload.of([*inputs, ending])
    found = generate(workload, H200).sketches
    assert found and not any("tensor" in sketch.name for sketch in found)
    for sketch in found:
        check(workload, sketch, legal(sketch, 1)[0])


def test_without_tensor_cores_products_are_tiled_for_threads() -> None:
    from dataclasses import replace

    plain = replace(H200, features=())
    found = generate(workloads.matmul(m=64, n=64, k=64, dtype="float16"), plain, ["direct"]).sketches
    assert found and not any("tensor" in s.name for s in found)
    float32 = generate(workloads.matmul(m=64, n=64, k=64), H200, ["direct"]).sketches
    assert not any("tensor" in s.name for s in float32)  # products of float32 are not rounded to tfloat32
    bytes_ = workloads.matmul(m=64, n=64, k=64, dtype="int8", constant_b=False)
    assert not any("tensor" in s.name for s in generate(bytes_, H200, ["direct"]).sketches)


def test_traces_replay_in_a_process_that_has_no_rules() -> None:
    """The instructions are known by their names once loop programs are lowered."""
    workload = workloads.matmul(m=32, n=16, k=32, dtype="float16")
    sketch = generate(workload, H200, ["direct"]).sketches[0]
    (row,) = legal(sketch, 1)
    trace = sketch.trace(row)
    assert str(make_program(workload, "direct", type(trace).from_json(trace.to_json()))) == str(
        make_program(workload, "direct", trace)
    )
