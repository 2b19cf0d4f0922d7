"""Rows of a batch are apart: nothing that one of them holds changes a bit of another one's answer, by default."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.compiler.selection import Limits
from autotune.config import ConfigError
from autotune.config import Network as RunConfigNetwork
from search_space import workloads
from search_space.operators.algorithms import BY_NAME, check_names, within
from search_space.operators.base import LIBRARY
from search_space.operators.strassen import STRASSEN
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.search_space.operators.test_winograd import random_candidates

Array = NDArray[Any]
HOSTILE = (np.nan, np.inf, 1e30)
"""Elements of a row that no other row may notice."""

LAYERS = [
    workloads.matmul(m=64, n=128, k=128),
    workloads.matmul(m=64, n=128, k=128, dtype="bfloat16"),
    Workload("dense", {"batch": 33, "in_features": 128, "out_features": 128, "bias": True, "activation": "relu"}),
    *(
        Workload("conv2d", {"height": 8, "width": 6, "in_channels": 32, "out_channels": 32, "batch": 2, **more})
        for more in ({"kernel": 3, "padding": 1}, {"kernel": 1}, {"kernel": (1, 7), "padding": (0, 3)})
    ),
    Workload("softmax", {"rows": 9, "columns": 33}),
]


@pytest.mark.parametrize("workload", LAYERS, ids=lambda workload: workload.key)
def test_no_default_algorithm_lets_a_row_change_another(workload: Workload) -> None:
    target, (data, *others) = registry.get("cpu"), workload.make_inputs(0)
    poisoned = data.copy()
    rows, row = data.shape[0], data.shape[0] // 4
    poisoned[row].reshape(-1)[:: len(HOSTILE)] = HOSTILE[0]
    poisoned[row].reshape(-1)[1] = HOSTILE[1]
    poisoned[row].reshape(-1)[2] = HOSTILE[2]
    for algorithm in within(workload.algorithms):
        if algorithm == LIBRARY:
            continue
        for sketch in generate(workload, target.hardware, [algorithm]).sketches:
            for choices in random_candidates(sketch, np.random.default_rng(0), 1):
                kernel = target.load(target.build(make_program(workload, algorithm, sketch.trace(choices))))
                plain, hostile = (kernel.bind([x, *others]).run().copy() for x in (data, poisoned))
                apart = [at for at in range(rows) if at != row]
                message = f"{algorithm} {sketch.name} {choices.tolist()}"
                np.testing.assert_array_equal(hostile[apart], plain[apart], err_msg=message)


def product_model(weight: Array, rows: int) -> onnx.ModelProto:
    depth, columns = weight.shape
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, depth])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns])],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_network_keeps_rows_apart_unless_strassen_is_asked_for_by_name() -> None:
    """A product that Strassen's algorithm is estimated to make fastest, on one thread."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((512, 512), np.float32)
    model, data = product_model(weight, 256), rng.standard_normal((256, 512), np.float32)
    data[3] = np.nan
    data[5] *= 1e6
    plain = autotune.compile(model, threads=1)
    output, exact = np.asarray(plain(data)), data.astype(np.float64) @ weight
    assert np.flatnonzero(np.isnan(output).any(1)).tolist() == [3]
    room = 512 * 2.0**-23 * (np.abs(data).astype(np.float64) @ np.abs(weight))
    finite = np.arange(256) != 3
    assert (np.abs(output - exact) <= room)[finite].all()
    asked = autotune.compile(model, threads=1, algorithms=[STRASSEN])
    # The estimate of the processor at hand decides whether it is the fastest; its halves are 128 rows apart.
    assert np.flatnonzero(np.isnan(np.asarray(asked(data))).any(1)).tolist() in ([3, 131], [3])
    with pytest.raises(
        ConfigError, match="network.algorithms.0: must be 'strassen' or 'winograd4_dot', but got 'direct'"
    ):
        autotune.compile(model, algorithms=["direct"])


def test_algorithms_that_no_default_has_are_asked_for_by_name() -> None:
    workload = workloads.matmul(m=128, n=128, k=128)
    assert STRASSEN in BY_NAME and STRASSEN in workload.algorithms
    assert STRASSEN not in within(workload.algorithms) and STRASSEN not in within(workload.algorithms, 1.0)
    assert STRASSEN in within(workload.algorithms, explicit=[STRASSEN])
    assert STRASSEN not in Limits().list_algorithms(workload) and STRASSEN not in Limits(max_error=1.0).list_algorithms(
        workload
    )
    assert STRASSEN in Limits(extra_algorithms=[STRASSEN]).list_algorithms(workload)
    assert STRASSEN not in Limits(extra_algorithms=[STRASSEN], max_error=0.0).list_algorithms(workload)
    assert Limits(algorithms=[STRASSEN]).list_algorithms(workload) == [STRASSEN]
    assert Limits(algorithms=["direct"], extra_algorithms=[STRASSEN]).list_algorithms(workload) == ["direct", STRASSEN]
    conv = Workload("conv2d", {"height": 8, "width": 8, "in_channels": 32, "out_channels": 32, "kernel": 3})
    assert within(conv.algorithms) == [name for name in conv.algorithms if name not in BY_NAME]
    (kinds,) = get_args(RunConfigNetwork.model_fields["algorithms"].annotation)
    assert get_args(kinds) == BY_NAME
    with pytest.raises(ValueError, match=r"`algorithms` must be among strassen, winograd4_dot, but got 'straßen'"):
        check_names(["straßen"])
