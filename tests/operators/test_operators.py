"""The operator library: every operator against NumPy, unscheduled by the interpreter and scheduled by the target."""

from __future__ import annotations

import numpy as np
import pytest

from search_space import workloads
from search_space.ir.interp import interpret
from search_space.lower import cleanup, lower
from search_space.schedule.state import initial_state
from search_space.space import generate, program_of
from search_space.workloads import OPERATORS, Workload
from targets import registry

SMALL = [
    workloads.conv2d(height=5, width=6, in_channels=3, out_channels=4, padding=1, bias=True, activation="relu"),
    workloads.conv2d(height=7, width=7, in_channels=4, out_channels=6, kernel=[3, 1], stride=2, groups=2),
    workloads.conv2d(height=8, width=7, in_channels=2, out_channels=3, dilation=2, activation="silu"),
    workloads.conv2d(height=5, width=5, in_channels=4, out_channels=8, dtype="int8", padding=1),
    workloads.conv1d(width=11, in_channels=3, out_channels=5, kernel=3, stride=2, padding=1, activation="tanh"),
    workloads.conv3d(depth=4, height=5, width=4, in_channels=2, out_channels=3, padding=1),
    workloads.depthwise_conv2d(height=7, width=6, channels=5, stride=2, padding=1, bias=True, activation="relu6"),
    workloads.conv2d_transpose(height=4, width=3, in_channels=3, out_channels=4, kernel=3, stride=2, padding=1),
    workloads.matmul(5, 7, 6),
    workloads.matmul(4, 6, 8, dtype="float16"),
    workloads.matmul(4, 6, 8, dtype="bfloat16"),
    workloads.batch_matmul(2, 4, 5, 6),
    workloads.dense(3, 8, 5, bias=True, activation="gelu"),
    workloads.max_pool2d(height=7, width=7, channels=5, kernel=3, stride=2, padding=1),
    workloads.avg_pool2d(height=6, width=7, channels=3, kernel=3, stride=2, padding=1),
    workloads.softmax(3, 21),
    workloads.layer_norm(3, 19),
    workloads.reduce([3, 4, 18], [2], "mean"),
    workloads.reduce([3, 18, 4], [1], "max"),
    workloads.reduce([5, 40], [1], "sum"),
    workloads.reduce([2, 3, 33], [2], "max"),
    workloads.elementwise("sigmoid", [3, 17]),
    workloads.elementwise("divide", [50]),
]


def close(found: np.ndarray, workload: Workload, inputs: list[np.ndarray]) -> None:
    rtol, atol = workload.tolerance
    np.testing.assert_allclose(found, workload.reference(*inputs), rtol=rtol, atol=atol)


@pytest.mark.parametrize("workload", SMALL, ids=str)
def test_the_definition_means_the_reference(workload: Workload) -> None:
    inputs = workload.make_inputs(0)
    program = cleanup(lower(initial_state(workload.tensors()[-1:])))
    named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
    close(interpret(program, named)[program.outputs[0]], workload, inputs)


@pytest.mark.parametrize("workload", SMALL, ids=str)
def test_every_sketch_means_the_reference(workload: Workload) -> None:
    target, rng, inputs = registry.get("cpu"), np.random.default_rng(0), workload.make_inputs(1)
    for sketch in generate(workload, target.hardware).sketches:
        choices = np.zeros((1, len(sketch.groups)), np.int32)
        if sketch.groups:
            choices = np.stack([rng.integers(len(g.table), size=500) for g in sketch.groups], 1).astype(np.int32)
        legal = choices[sketch.legal(choices)]
        kernel = target.load(target.build(program_of(workload, sketch.algorithm, sketch.trace(legal[0]))))
        close(kernel.bind(inputs).run(), workload, inputs)


def test_every_operator_is_tried() -> None:
    assert {w.operator for w in SMALL} == set(OPERATORS)


@pytest.mark.parametrize("workload", SMALL, ids=str)
def test_workloads_replay_from_json(workload: Workload) -> None:
    again = Workload.from_json(workload.to_json())
    assert again == workload and again.key == workload.key and again.flops == workload.flops > 0


def test_keys_are_stable() -> None:
    """Records are found by these texts: a change orphans every record there is."""
    assert workloads.matmul(2, 3, 4).key == "matmul(m=2,n=3,k=4,dtype=float32,constant_b=True)"
    assert workloads.conv2d(height=5, width=5, in_channels=1, out_channels=2).key == (
        "conv2d(batch=1,height=5,width=5,in_channels=1,out_channels=2,kernel=3x3,stride=1x1,padding=0x0,"
        "dilation=1x1,groups=1,bias=False,activation=None,dtype=float32)"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: workloads.matmul(0, 3, 4), "`m` must be a positive integer, but got m=0"),
        (lambda: workloads.matmul(2, 3, 4, dtype="float64"), "`dtype` must be one of .*, but got dtype='float64'"),
        (
            lambda: workloads.conv2d(height=2, width=9, in_channels=1, out_channels=1, kernel=5),
            "`kernel` must fit the padded height",
        ),
        (
            lambda: workloads.conv2d(height=4, width=4, in_channels=3, out_channels=4, groups=2),
            "`groups` must divide in_channels and out_channels",
        ),
        (
            lambda: workloads.conv2d(height=4, width=4, in_channels=3, out_channels=4, activation="rellu"),
            "`activation` must be one of",
        ),
        (lambda: workloads.conv2d(heigth=4), "`conv2d` must have arguments among .* did you mean height"),
        (lambda: workloads.conv2d(height=4), "`width` must be a positive integer, but got width=0"),
        (lambda: workloads.matmul(2), "`matmul` must be given its sizes"),
        (lambda: Workload.from_json({"operator": "conv2"}), "`operator` must be one of .* did you mean conv"),
        (lambda: workloads.reduce([3, 4], [0, 1]), "`axes` must name some but not all"),
        (lambda: workloads.elementwise("cube", [3]), "`function` must be one of"),
        (lambda: workloads.matmul(2, 3, 4).tensors("winograd"), "`algorithm` must be one of direct"),
    ],
)
def test_impossible_workloads_are_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
