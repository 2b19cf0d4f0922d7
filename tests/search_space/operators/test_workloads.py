"""Workloads as data: keys, JSON, inputs, tolerances, and what is refused."""

from __future__ import annotations

import inspect
import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from search_space import operators, te, workloads
from search_space.dtypes import numpy_dtype
from search_space.operators import Operator
from search_space.workloads import OPERATORS, TensorSpec, Workload
from tests.search_space.operators.cases import SMALL


@pytest.mark.parametrize("workload", SMALL, ids=str)
def test_workloads_survive_json_and_pickle(workload: Workload) -> None:
    text = json.dumps(workload.to_json())
    for again in (Workload.from_json(json.loads(text)), pickle.loads(pickle.dumps(workload))):
        assert again == workload and again.key == workload.key and again.args == workload.args
        assert again.flops == workload.flops > 0
        assert json.dumps(again.to_json()) == text


def test_keys_are_stable() -> None:
    """Records are found by these texts: a change orphans every record there is."""
    assert workloads.matmul(2, 3, 4).key == "matmul(m=2,n=3,k=4,dtype=float32,constant_b=True)"
    assert workloads.conv2d(height=5, width=5, in_channels=1, out_channels=2).key == (
        "conv2d(batch=1,height=5,width=5,in_channels=1,out_channels=2,kernel=3x3,stride=1x1,padding=0x0,"
        "dilation=1x1,groups=1,bias=False,activation=None,dtype=float32)"
    )
    assert workloads.layer_norm(2, 3).key == "layer_norm(rows=2,columns=3,epsilon=1e-05)"
    assert workloads.reduce((2, 3), -1).key == "reduce(shape=2x3,axes=1,reducer=sum,dtype=float32)"


def test_one_workload_has_one_form() -> None:
    same = [
        workloads.conv2d(1, 8, 8, 4, 4, 3, padding=1),
        workloads.conv2d(height=8, width=8, in_channels=4, out_channels=4, kernel=[3, 3], padding=(1, 1)),
        Workload("conv2d", {"out_channels": 4, "in_channels": 4, "width": 8, "height": np.int64(8), "padding": 1}),
    ]
    assert len(set(same)) == 1 and len({w.key for w in same}) == 1
    assert workloads.conv2d(1, 8, 8, 4, 4, 3) not in same
    with pytest.raises(TypeError):
        same[0].args["height"] = 9  # type: ignore[index]


def test_every_operator_has_a_constructor_with_its_own_signature() -> None:
    for name, operator in OPERATORS.items():
        constructor = getattr(workloads, name)
        assert list(inspect.signature(constructor).parameters) == list(operator.parameters)
        assert constructor.__doc__ == operator.normalise.__doc__ and constructor.__name__ == name


def test_specs_name_what_is_constant() -> None:
    workload = workloads.conv2d(height=5, width=4, in_channels=2, out_channels=3, bias=True, dtype="int8")
    assert workload.inputs == (
        TensorSpec("data", (1, 5, 4, 2), "uint8"),
        TensorSpec("weight", (3, 3, 2, 3), "int8", True),
        TensorSpec("bias", (3,), "int32", True),
    )
    assert workload.output == TensorSpec("epilogue", (1, 3, 2, 3), "int32")


@pytest.mark.parametrize("workload", SMALL, ids=str)
def test_inputs_are_of_their_seed_and_within_the_domain(workload: Workload) -> None:
    first, again, other = (workload.make_inputs(seed) for seed in (3, 3, 4))
    for spec, array, same in zip(workload.inputs, first, again, strict=True):
        assert (array.shape, array.dtype) == (spec.shape, numpy_dtype(spec.dtype))
        np.testing.assert_array_equal(array, same)
    assert any((a != b).any() for a, b in zip(first, other, strict=True))
    with np.errstate(all="raise", under="ignore"):
        assert np.isfinite(workload.reference(*first).astype(float)).all()


def test_tolerance_grows_with_the_reduction_and_is_nothing_for_integers() -> None:
    short, long = (workloads.matmul(2, 2, k).tolerance for k in (4, 4096))
    assert all(0 < a < b < 1e-3 for a, b in zip(short, long, strict=True))
    assert workloads.matmul(2, 2, 4, dtype="int8").tolerance == (0, 0)
    assert workloads.softmax(2, 1000).tolerance[1] < 0.001 * 1 / 1000, "far below one element"


def test_a_missing_term_is_out_of_tolerance() -> None:
    workload = workloads.matmul(16, 16, 2304)
    a, b = workload.make_inputs(0)
    rtol, atol = workload.tolerance
    whole = workload.reference(a, b)
    error = np.abs(a[:, :-1] @ b[:-1] - whole)
    assert (error > atol + rtol * np.abs(whole)).mean() > 0.9


def test_flops_count_a_multiply_add_as_two() -> None:
    assert workloads.matmul(3, 4, 5).flops == 2 * 3 * 4 * 5
    conv = workloads.conv2d(2, 9, 7, 4, 6, kernel=(3, 1), stride=2, padding=(1, 0), groups=2)
    assert conv.flops == 2 * 2 * (5 * 4) * 6 * (3 * 1 * 2)
    assert workloads.depthwise_conv2d(1, 5, 5, 8).flops == 2 * 9 * 8 * 9
    assert workloads.conv2d_transpose(1, 2, 3, 4, 5, stride=2).flops == 2 * 6 * 20 * 9


def test_im2col_is_there_without_groups() -> None:
    assert workloads.conv2d(1, 5, 5, 4, 4, kernel=5).algorithms == ("direct", "im2col", "library")
    assert workloads.conv2d(1, 5, 5, 4, 4, groups=2).algorithms == ("direct",)


CONV: dict[str, Any] = {"height": 4, "width": 4, "in_channels": 3, "out_channels": 4}
REFUSED_WORKLOADS: list[tuple[Callable[[], Any], str]] = [
    (lambda: workloads.matmul(0, 3, 4), "`m` must be an integer of at least 1, but got m=0"),
    (lambda: workloads.matmul(2, 3.0, 4), "`n` must be an integer of at least 1, but got n=3.0"),  # type: ignore[arg-type]
    (lambda: workloads.matmul(2, True, 4), "`n` must be an integer of at least 1, but got n=True"),
    (lambda: workloads.matmul(2, 3, 4, "float64"), "`dtype` must be one of .*, but got dtype='float64'"),
    (lambda: workloads.matmul(2, 3), "`matmul` must be given k, but got m=2, n=3"),  # type: ignore[call-arg]
    (lambda: workloads.conv2d(), "`conv2d` must be given height, width, .*, but got nothing"),
    (
        lambda: workloads.conv2d(**CONV, heigth=4),
        "`conv2d` must have arguments among .*; did you mean 'height'",
    ),
    (
        lambda: workloads.conv2d(**CONV, kernel=5),
        r"`kernel` must fit the padded height, but got kernel=\[5, 5\]",
    ),
    (lambda: workloads.conv2d(**CONV, kernel=(1, 2, 3)), "`kernel` must be an integer or 2 of them"),
    (lambda: workloads.conv2d(**CONV, padding=-1), "`padding` must be an integer of at least 0"),
    (lambda: workloads.conv2d(**CONV, stride=(1, 0)), "`stride` must be an integer of at least 1"),
    (
        lambda: workloads.conv2d(**CONV, groups=2),
        "`groups` must divide in_channels, but got groups=2, in_channels=3",
    ),
    (lambda: workloads.conv2d(**CONV, groups=3), "`groups` must divide out_channels"),
    (lambda: workloads.conv2d(**CONV, activation="rellu"), "`activation` must be .*; did you mean 'relu'"),
    (lambda: workloads.conv2d(**CONV, activation="gelu", dtype="int8"), "one of relu, relu6 for dtype=int8"),
    (lambda: workloads.conv2d(**CONV, bias=1), "`bias` must be true or false, but got bias=1"),
    (lambda: workloads.conv2d_transpose(**CONV, padding=3), "`padding` must be less than kernel"),
    (
        lambda: workloads.conv2d_transpose(**CONV, output_padding=1),
        "`output_padding` must be less than stride",
    ),
    (
        lambda: workloads.conv2d_transpose(1, 1, 1, 1, 1, kernel=3, padding=2),
        "`padding` must leave an output, .*height=1",
    ),
    (
        lambda: workloads.conv2d_blocked(4, 4, 24, 32),
        r"`block` must divide in_channels, but got block=\[1, 16, 16\], in_channels=24",
    ),
    (lambda: workloads.conv2d_blocked(4, 4, 16, 16, shift=16), "`shift` must be .* from 0 to 15, but got shift=16"),
    (lambda: workloads.dense_blocked(3, 16, 16, block=(2, 16, 16)), "`block` must divide batch, but got .*batch=3"),
    (lambda: workloads.dense_blocked(3, 16, 16, block=(1, 16)), "`block` must be an integer or 3 of them"),
    (lambda: workloads.dense_blocked(3, 16, 16, relu=1), "`relu` must be true or false, but got relu=1"),  # type: ignore[arg-type]
    (lambda: workloads.max_pool2d(1, 4, 4, 3, padding=2), "`padding` must be at most half the kernel"),
    (lambda: workloads.layer_norm(2, 3, epsilon=-1), "`epsilon` must be 0 or a positive number, but got epsilon=-1"),
    (lambda: workloads.layer_norm(2, 3, epsilon=10**400), "`epsilon` must be 0 or a positive number, but got epsilon="),
    (lambda: workloads.reduce((3, 4), (0, 1)), "`axes` must leave an axis"),
    (lambda: workloads.reduce((3, 4), 2), "`axes` must be distinct axes of 2 dimensions, but got axes=2"),
    (lambda: workloads.reduce((3, 4), (1, -1)), "`axes` must be distinct axes"),
    (lambda: workloads.reduce((3, 4), 0, "mean", "int32"), "one of sum, max, min, prod for dtype=int32"),
    (lambda: workloads.reduce((), ()), r"`shape` must be a list of at least one integer, but got shape=\(\)"),
    (lambda: workloads.elementwise("cube", (3,)), "`function` must be one of"),
    (lambda: workloads.elementwise("exp", (3,), "int32"), "`function` must be one of .* for dtype=int32"),
    (lambda: workloads.matmul(2, 3, 4).tensors("winograd"), "`algorithm` must be one of direct, library, but got"),
    (
        lambda: Workload("conv2", {}),
        "`operator` must be one of .*, but got operator='conv2'; did you mean 'conv2d'",
    ),
    (lambda: Workload("matmul", 3), "`args` must be a mapping"),  # type: ignore[arg-type]
    (lambda: Workload.from_json({"operator": "matmul"}), r"`workload` must have the keys operator and args"),
    (lambda: Workload.from_json([]), "`workload` must have the keys operator and args"),  # type: ignore[arg-type]
    (
        lambda: Workload.from_json({**workloads.matmul(1, 2, 3).to_json(), "more": 1}),
        "must have the keys operator and args, but got workload=.*more",
    ),
    (
        lambda: workloads.matmul(2, 3, 4).reference(np.zeros((2, 4), "f4"), np.zeros((3, 4), "f4")),
        r"`arrays` must be a float32\[2, 4\], b float32\[4, 3\], but got .*float32\[3, 4\]",
    ),
]


@pytest.mark.parametrize(("make", "message"), REFUSED_WORKLOADS, ids=[m for _, m in REFUSED_WORKLOADS])
def test_the_impossible_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_an_argument_given_twice_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError, match="matmul takes"):
        workloads.matmul(1, 2, 3, m=4)  # type: ignore[misc]
    with pytest.raises(TypeError, match="softmax takes"):
        workloads.softmax(1, 2, 3)  # type: ignore[call-arg]


def double(size: int) -> dict[str, Any]:
    """Twice an array."""
    return {"size": size}


def twice(args: operators.base.Args) -> list[te.Tensor]:
    x = te.placeholder((args["size"],), name="x")
    return [x, te.compute(x.shape, lambda i: x[i] * 2, name="double")]


def test_an_operator_of_ones_own_is_registered_once() -> None:
    mine = Operator("double", double, {"direct": twice}, lambda args, x: 2 * x, lambda args: args["size"])
    try:
        operators.register(mine)
        workload = Workload("double", {"size": 5})
        np.testing.assert_array_equal(workload.reference(np.ones(5, "f4")), np.full(5, 2, "f4"))
        with pytest.raises(ValueError, match="`name` must be new, but got name='double'"):
            operators.register(mine)
    finally:
        del OPERATORS["double"]
