"""ONNX's own node tests, for the operators that are imported: which apply, and how they are run.

What the importer wants to know when a model is read (weights, shapes, axes) is given as an initialiser; ONNX's tests
give everything as inputs.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

from autotune.graph.evaluate import evaluate
from autotune.graph.importer import HANDLERS, ModelError, import_model
from autotune.graph.importer.model import OPSETS
from autotune.graph.onnx_model import inferred
from search_space.ir.expr import DTYPES
from tests.graph.onnx_models import Array

CONSTANT: dict[str, tuple[int, ...]] = {
    "Conv": (1,),
    "ConvTranspose": (1,),
    "BatchNormalization": (1, 2, 3, 4),
    "InstanceNormalization": (1, 2),
    "GroupNormalization": (1, 2),
    "Clip": (1, 2),
    "Reshape": (1,),
    "Squeeze": (1,),
    "Unsqueeze": (1,),
    "Expand": (1,),
    "Tile": (1,),
    "Pad": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "Dropout": (1, 2),
    "CumSum": (1,),
    "DFT": (1, 2),
    "STFT": (1, 2, 3),
    "Col2Im": (1, 2),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), (0,)),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (1, 2, 3, 4, 7)),
    "ScatterND": (1,),
    "ScatterElements": (1,),
    "AffineGrid": (1,),
    "CastLike": (1,),
    "MaxUnpool": (2,),
    "ConvInteger": (1, 3),
    "QLinearConv": (3, 5),
    "Compress": (1,),
    "OneHot": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Scatter": (1,),
    "CausalConvWithState": (1,),
    "CenterCropPad": (1,),
    "ConstantOfShape": (0,),
    "Loop": (0, 1),
    "Range": (0, 1, 2),
    "If": (0,),
    **{f"Reduce{name}": (1,) for name in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2")},
    **{f"Reduce{name}": (1,) for name in ("SumSquare", "LogSum", "LogSumExp")},
}
"""Operator → inputs that must be known when the model is read."""


FOLDED = {"Constant", "ConstantOfShape", "Range", "Shape", "Size"}
"""Operators that are computed at import."""


UNITS = {"float16": 2.0**-9, "bfloat16": 2.0**-6}
"""Two units in the last place: compositions round more often than ONNX's evaluator."""


@dataclass(frozen=True)
class Case:
    """One test of one operator.

    Attributes:
        name: ONNX's name of it.
        op: the operator.
        model: as ONNX has it.
        inputs, outputs: by name.
        rtol, atol: tolerances that ONNX states.
    """

    name: str
    op: str
    model: onnx.ModelProto
    inputs: dict[str, Array]
    outputs: dict[str, Array]
    rtol: float
    atol: float

    def run(self) -> None:
        """Imports, computes in NumPy and compares."""
        model, inputs = self.model_with_initialisers()
        graph = import_model(model)
        values = evaluate(graph, {name: inputs[name] for name in graph.inputs})
        self.compare([values[name] for name in graph.outputs])

    def compare(self, found: Sequence[Array]) -> None:
        """Holds outputs, in the order of the model, against ONNX's."""
        for name, ours in zip([value.name for value in self.model.graph.output], found, strict=True):
            wanted = self.outputs[name]
            assert ours.shape == wanted.shape, (ours.shape, wanted.shape)
            assert ours.dtype == wanted.dtype, (ours.dtype, wanted.dtype)
            rtol = max(self.rtol, UNITS.get(str(wanted.dtype), 1e-5))
            np.testing.assert_allclose(
                np.asarray(ours, float), np.asarray(wanted, float), rtol=rtol, atol=max(self.atol, 1e-6)
            )

    def model_with_initialisers(self) -> tuple[onnx.ModelProto, dict[str, Array]]:
        """The model with what must be known as initialisers, shapes inferred, and its other inputs."""
        model, inputs = self._with_initialisers()
        return inferred(model), inputs

    def _with_initialisers(self) -> tuple[onnx.ModelProto, dict[str, Array]]:
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        places = CONSTANT.get(self.op, ())
        names = [value.name for value in model.graph.input]
        if len(model.graph.node) == 1:
            given = model.graph.node[0].input
            fixed = {given[i] for i in places if i < len(given)}
        else:
            fixed = {names[i] for i in places if i < len(names)}
        fixed.discard("")
        for name in sorted(fixed):
            model.graph.initializer.append(numpy_helper.from_array(self.inputs[name], name))
        kept = [value for value in model.graph.input if value.name not in fixed]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        return model, {name: array for name, array in self.inputs.items() if name not in fixed}


@cache
def cases() -> dict[str, Case]:
    """Every test of an operator that is imported, by name; those of its definition as a function of others, too."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        collected = collect_testcases()
    tests = {test.name: test for test in collected if test.model is not None and test.data_sets}
    found = {}
    for name, test in tests.items():
        plain = tests.get(name.split("_expanded")[0])
        if plain is None or len(plain.model.graph.node) != 1:
            continue
        node = plain.model.graph.node[0]
        if node.op_type in HANDLERS and node.domain in ("", "ai.onnx"):
            found[name] = _case(node.op_type, test)
    return found


def _case(op: str, test: Any) -> Case:
    model = test.model
    names = [[value.name for value in values] for values in (model.graph.input, model.graph.output)]
    given, wanted = (
        dict(zip(n, map(_array, values), strict=True)) for n, values in zip(names, test.data_sets[0], strict=True)
    )
    return Case(test.name, op, model, given, wanted, test.rtol, test.atol)


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def outside(case: Case) -> str | None:
    """Why a test asks for what graphs do not have; None where it must pass."""
    opset = next((o.version for o in case.model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if opset not in OPSETS:
        return f"operator set {opset}"
    arrays = [*case.inputs.values(), *case.outputs.values()]
    if any(not isinstance(array, (np.ndarray, np.generic)) for array in arrays):
        return "sequences and optional values"
    kinds = {str(array.dtype) for array in arrays} - set(DTYPES)
    if kinds:
        return f"elements of {', '.join(sorted(kinds))}"
    if any(array.size == 0 for array in arrays):
        return "arrays without elements"
    if case.op not in {node.op_type for node in case.model.graph.node}:
        unknown = {node.op_type for node in case.model.graph.node} - set(HANDLERS) - FOLDED
        if unknown:
            return f"expanded into {', '.join(sorted(unknown))}"
    return next((reason for pattern, reason in EXCLUDED.items() if re.fullmatch(pattern, case.name)), None)


EXCLUDED: dict[str, str] = {
    r"test_averagepool_(2d|3d)_dilations.*": "pools have dilation 1",
    r"test_maxpool_(2d|3d)_dilations.*": "pools have dilation 1",
    r"test_maxpool_with_argmax_.*": "pools give no indices",
    r"test_convtranspose_3d": "transposed convolutions slide over one or two axes",
    r"test_batchnorm_.*_training_mode": "statistics are constants",
    r"test_training_dropout.*": "training",
    r"test_dropout_default_mask.*": "the mask is not computed",
    r"test_div_(u?int8|int32_trunc)": "integers are not divided",
    r"test_pow_types_int.*": "integers are not raised",
    r"test_reduce_(max|min)_bool_inputs": "reductions are of float32 and int32",
    r"test_resize_downsample_scales_(linear|cubic)_align_corners": "corners are aligned as runtimes do",
}
"""Pattern of a test's name → why it is not supported."""


def passing() -> tuple[int, int]:
    """How many tests of imported operators pass, and how many there are."""
    tests = cases().values()
    good = 0
    for case in tests:
        if outside(case) is None:
            try:
                case.run()
            except (ModelError, AssertionError):
                continue
            good += 1
    return good, len(tests)
