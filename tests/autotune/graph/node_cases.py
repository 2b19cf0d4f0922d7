"""ONNX's own node tests, brought into a form that `import_model` takes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from autotune.graph.evaluate import evaluate
from autotune.graph.importer import import_model, supported
from autotune.graph.onnx_model import ModelError

Array = NDArray[Any]

PARAMETERS = {
    "AveragePool": (),
    "BatchNormalization": (1, 2, 3, 4),
    "CastLike": (1,),
    "ConstantOfShape": (0,),
    "ConvTranspose": (1,),
    "Dropout": (1, 2),
    "Expand": (1,),
    "OneHot": (1,),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
    **{
        f"Reduce{kind}": (1,)
        for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    },
}
"""Inputs that say what an operator does and that graphs want as constants; node tests make them inputs of the model."""


@dataclass(frozen=True, eq=False)
class NodeCase:
    """One of ONNX's node tests."""

    name: str
    model: onnx.ModelProto
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    rtol: float
    atol: float

    @property
    def operators(self) -> set[str]:
        """ONNX operators of the model."""
        return {node.op_type if node.domain in ("", "ai.onnx") else node.domain for node in self.model.graph.node}


@cache
def node_cases() -> dict[str, NodeCase]:
    """Every node test by name."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    return {c.name: _case(c) for c in found if c.data_sets}


def _case(case: Any) -> NodeCase:
    inputs, outputs = case.data_sets[0]
    return NodeCase(case.name, case.model, _arrays(inputs), _arrays(outputs), case.rtol, case.atol)


def _arrays(values: Any) -> tuple[Any, ...]:
    return tuple(numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v for v in values)


def in_scope() -> list[str]:
    """Names of the tests all of whose operators are imported; what reads constants only is folded, whatever it is."""
    known = {*supported(), "Constant", "ConstantOfShape", "Shape", "Size", "Range"}
    return [name for name, case in node_cases().items() if case.operators <= known]


def run(case: NodeCase) -> None:
    """Imports, evaluates and compares.

    Raises:
        ModelError: graphs do not have it.
        AssertionError: an output is another.
    """
    model, feeds = bound(case)
    graph = import_model(model)
    values = evaluate(graph, feeds)
    for name, want in zip(graph.outputs, case.outputs, strict=True):
        got, want = values[name], np.asarray(want)
        assert (got.shape, got.dtype) == (want.shape, want.dtype), f"{name}: {got.dtype}{list(got.shape)}"
        np.testing.assert_allclose(got, want, rtol=case.rtol, atol=max(case.atol, 1e-7), err_msg=name)


def bound(case: NodeCase) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model with the inputs of `PARAMETERS` as initialisers, every shape fixed, and arrays for the other inputs."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph = model.graph
    given: Mapping[str, Any] = {value.name: array for value, array in zip(graph.input, case.inputs, strict=True)}
    fixed = {
        node.input[place]
        for node in graph.node
        for place in PARAMETERS.get(node.op_type, ())
        if place < len(node.input) and node.input[place] in given
    }
    if case.name.startswith("test_center_crop_pad"):
        fixed.add("shape")
    for value in list(graph.input):
        array = given[value.name]
        if not isinstance(array, np.ndarray | np.generic) or not value.type.HasField("tensor_type"):
            raise ModelError(f"inputs must be tensors, but got {value.name}")
        if value.name in fixed:
            graph.initializer.append(numpy_helper.from_array(np.asarray(array), value.name))
            graph.input.remove(value)
        else:
            del value.type.tensor_type.shape.dim[:]
            value.type.tensor_type.shape.SetInParent()
            for extent in np.shape(array):
                value.type.tensor_type.shape.dim.add().dim_value = extent
    return model, {name: np.asarray(array) for name, array in given.items() if name not in fixed}
