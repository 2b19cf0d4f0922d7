"""Fused workloads: any operator with an element-wise definition on its output."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from search_space import te, te_json, workloads
from search_space.workloads import Workload


def ending(shape: tuple[int, ...], residual: bool = True) -> dict[str, object]:
    layer = te.placeholder(shape, name="layer")
    bias = te.placeholder(shape[-1:], name="y0", constant=True)
    other = te.placeholder(shape, name="y1")
    out = te.compute(shape, lambda *i: layer[i] + bias[i[-1]], name="add")
    if residual:
        summed = out
        out = te.compute(shape, lambda *i: summed[i] + other[i], name="add")
    last = out
    out = te.compute(shape, lambda *i: te.maximum(last[i], 0), name="relu")
    return te_json.to_json([layer, bias, *([other] if residual else []), out])


def make_fused() -> Workload:
    anchor = workloads.conv2d(height=6, width=7, in_channels=8, out_channels=16, padding=1)
    return Workload("fused", {"anchor": anchor.to_json(), "epilogue": ending((1, 6, 7, 16))})


def test_it_takes_the_anchors_inputs_then_the_epilogues() -> None:
    specs = make_fused().inputs
    assert [s.name for s in specs] == ["data", "weight", "y0", "y1"]
    assert [s.constant for s in specs] == [False, True, True, False]


def test_the_reference_is_the_anchors_and_what_follows() -> None:
    workload = make_fused()
    data, weight, bias, other = workload.make_inputs(0)
    anchor = workloads.conv2d(height=6, width=7, in_channels=8, out_channels=16, padding=1)
    wanted = np.maximum(anchor.reference(data, weight) + bias + other, 0)
    np.testing.assert_allclose(workload.reference(data, weight, bias, other), wanted, rtol=1e-5, atol=1e-5)


def test_every_algorithm_of_the_anchor_is_one_of_the_whole() -> None:
    workload = make_fused()
    anchor = Workload.from_json(workload.args["anchor"])
    assert workload.algorithms == anchor.algorithms
    for algorithm in workload.algorithms:
        assert workload.tensors(algorithm)[-1].shape == (1, 6, 7, 16)


def test_the_key_tells_epilogues_apart_and_survives_json() -> None:
    workload = make_fused()
    plain = Workload("fused", {**workload.args, "epilogue": ending((1, 6, 7, 16), residual=False)})
    assert plain.key != workload.key
    assert workload.key.startswith("fused(conv2d(batch=1,height=6,")
    assert "+add+add_1+relu,sha256=" in workload.key
    assert Workload.from_json(workload.to_json()) == workload
    assert pickle.loads(pickle.dumps(workload)) == workload


AXES = (0, 2, 3, 1)


def test_the_reference_reads_through_a_transposition() -> None:
    workload = Workload("fused", {**make_fused().args, "axes": AXES})
    assert [s.shape for s in workload.inputs][:2] == [(1, 8, 6, 7), (3, 3, 8, 16)]
    data, *rest = workload.make_inputs(0)
    wanted = make_fused().reference(np.ascontiguousarray(data.transpose(AXES)), *rest)
    np.testing.assert_array_equal(workload.reference(data, *rest), wanted)
    for algorithm in workload.algorithms:
        assert workload.tensors(algorithm)[0].shape == (1, 8, 6, 7)
    assert workload.algorithms == ("direct", "im2col")


def test_a_transposition_is_in_the_key_and_none_is_not() -> None:
    workload = Workload("fused", {**make_fused().args, "axes": AXES})
    assert workload.key == make_fused().key[:-1] + ",axes=0x2x3x1)"
    assert Workload.from_json(workload.to_json()) == workload
    old = {name: value for name, value in make_fused().to_json()["args"].items() if name != "axes"}
    assert Workload("fused", old).key == make_fused().key


def front(
    shape: tuple[int, ...] = (1, 6, 7, 8), out_shape: tuple[int, ...] | None = None, least: int = 0
) -> dict[str, object]:
    """Times a gate of each channel, no less than `least`; of what has another shape where one is `out_shape`."""
    x, gate = te.placeholder(shape, name="x0"), te.placeholder(shape[-1:], name="y0")
    out = te.compute(out_shape or shape, lambda *i: te.maximum(x[tuple(i)] * gate[i[-1]], least), name="gated")
    return te_json.to_json([x, gate, out])


def test_what_stands_in_front_takes_the_place_of_the_first_input() -> None:
    workload = Workload("fused", {**make_fused().args, "prologue": front()})
    assert [s.shape for s in workload.inputs] == [(1, 6, 7, 8), (8,), (3, 3, 8, 16), (16,), (1, 6, 7, 16)]
    data, gate, *rest = workload.make_inputs(0)
    wanted = make_fused().reference(np.maximum(data * gate, np.float32(0)), *rest)
    np.testing.assert_allclose(workload.reference(data, gate, *rest), wanted, rtol=1e-5, atol=1e-5)
    assert workload.algorithms == tuple(a for a in make_fused().algorithms if a != "library")
    assert workload.flops == make_fused().flops + 2 * 6 * 7 * 8
    assert Workload.from_json(workload.to_json()) == workload


def test_what_stands_in_front_reads_through_a_transposition() -> None:
    workload = Workload("fused", {**make_fused().args, "prologue": front(), "axes": AXES})
    data, *rest = workload.make_inputs(0)
    assert data.shape == (1, 8, 6, 7)
    plain = Workload("fused", {**make_fused().args, "prologue": front()})
    wanted = plain.reference(np.ascontiguousarray(data.transpose(AXES)), *rest)
    np.testing.assert_array_equal(workload.reference(data, *rest), wanted)


def test_the_key_tells_what_stands_in_front() -> None:
    workload = Workload("fused", {**make_fused().args, "prologue": front()})
    assert workload.key.startswith(make_fused().key[:-1] + ",front=gated,sha256=")
    assert Workload("fused", {**make_fused().args, "prologue": front(least=1)}).key != workload.key
    old = {name: value for name, value in make_fused().to_json()["args"].items() if name != "prologue"}
    assert Workload("fused", old).key == make_fused().key


def test_it_counts_the_work_of_both() -> None:
    anchor = workloads.conv2d(height=6, width=7, in_channels=8, out_channels=16, padding=1)
    assert make_fused().flops > anchor.flops


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"anchor": {"operator": "conv2d"}}, "must have the keys operator and args"),
        ({"anchor": {"operator": "nothing", "args": {}}}, "`operator` must be one of"),
        ({"epilogue": ending((1, 6, 7, 32))}, r"must first read the anchor's float32\[1, 6, 7, 16\]"),
        ({"anchor": {"operator": "fused", "args": {}}}, "must be one operator by its name, but got fused"),
        ({"axes": (0, 2, 1)}, r"name each of the 4 dimensions of the anchor's data once, but got axes=\[0, 2, 1\]"),
        ({"axes": (0, 2, 3, 3)}, "must name each of the 4 dimensions"),
        ({"prologue": front((1, 6, 7, 9))}, r"must make the anchor's float32\[1, 6, 7, 8\] data"),
        ({"prologue": front((1, 6, 8, 8), (1, 6, 7, 8))}, r"must first read \[1, 6, 7, 8\], but got \[1, 6, 8, 8\]"),
        ({"prologue": front(), "stored": ("bfloat16", "")}, "must be empty for what a prologue makes"),
        ({"axes": "0231"}, "`axes` must be a list of dimensions, but got axes='0231'"),
        ({"axes": [0, 1, 2.0, True]}, "must be a list of dimensions"),
    ],
)
def test_bad_arguments_are_refused(change: dict[str, object], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Workload("fused", {**make_fused().args, **change})
