"""ONNX's own node tests: which apply, and how they are run.

Values that the importer must know when it reads a model (weights, shapes, axes) become initialisers; ONNX's tests
give everything as inputs.

`python -m tests.autotune.graph.compiled` runs all that apply through kernels.
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
from autotune.graph.frontends.onnx.importer import import_model
from autotune.graph.frontends.onnx.importer.model import OPSETS
from autotune.graph.frontends.onnx.model import with_shapes
from search_space.ir.expr import DTYPES
from tests.autotune.graph.onnx_models import Array

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


FOLDED_OPERATORS = {
    *("BlackmanWindow", "Constant", "ConstantOfShape", "EyeLike", "HammingWindow", "HannWindow", "MelWeightMatrix"),
    *("Range", "Shape", "Size"),
}
"""Operators of which the tests here know everything when the model is read: what is compiled is a copy."""


UNITS = {"float16": 2.0**-9, "bfloat16": 2.0**-6}
"""Two units in the last place: compositions round more often than ONNX's evaluator."""


@dataclass(frozen=True)
class Case:
    """One test of one operator.

    Attributes:
        name: ONNX's name of it.
        op: the operator.
        model: ONNX's model.
        inputs, outputs: arrays by name.
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

    def compare(self, actual: Sequence[Array]) -> None:
        """Holds outputs, in the order of the model, against ONNX's."""
        for name, ours in zip([value.name for value in self.model.graph.output], actual, strict=True):
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
        return with_shapes(model), inputs

    def list_unknown(self) -> list[str]:
        """Names of the inputs that are not known when the model is read."""
        fixed = self._fixed()
        return [name for name in self.inputs if name not in fixed]

    @property
    def folded(self) -> bool:
        """Tells whether the importer folds the node, so that its kernels copy a constant."""
        return self.op in FOLDED_OPERATORS

    def _fixed(self) -> set[str]:
        places = CONSTANT.get(self.op, ())
        nodes = self.model.graph.node
        names = [value.name for value in self.model.graph.input]
        given = list(nodes[0].input) if len(nodes) == 1 else names
        return {given[i] for i in places if i < len(given)} - {""}

    def _with_initialisers(self) -> tuple[onnx.ModelProto, dict[str, Array]]:
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        fixed = self._fixed()
        for name in sorted(fixed):
            model.graph.initializer.append(numpy_helper.from_array(self.inputs[name], name))
        kept = [value for value in model.graph.input if value.name not in fixed]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        return model, {name: array for name, array in self.inputs.items() if name not in fixed}


@cache
def cases() -> dict[str, Case]:
    """Every test by name, those of an operator's definition as a function of others, too."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        collected = collect_testcases()
    tests = {test.name: test for test in collected if test.model is not None and test.data_sets}
    found = {}
    for name, test in tests.items():
        plain = tests.get(name.split("_expanded")[0], test)
        found[name] = _case(plain.model.graph.node[0].op_type, test)
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
    """Returns why a test needs features that graphs lack; None if it must pass."""
    domains = {o.domain: o.version for o in case.model.opset_import}
    if set(domains) - {"", "ai.onnx"}:
        return "operators of other domains"
    opset = domains.get("", domains.get("ai.onnx", 0))
    if opset not in OPSETS:
        return f"operator set {opset}"
    arrays = [*case.inputs.values(), *case.outputs.values()]
    if any(not isinstance(array, (np.ndarray, np.generic)) for array in arrays):
        return "sequences and optional values"
    kinds = {str(array.dtype) for array in arrays} - set(DTYPES)
    if kinds:
        return f"elements of {', '.join(sorted(kinds)).replace('object', 'text')}"
    if any(case.inputs[name].size == 0 for name in case.list_unknown()) or any(
        a.size == 0 for a in case.outputs.values()
    ):
        return "arrays without elements"
    if case.op in REFUSALS:
        return REFUSALS[case.op]
    return next((reason for pattern, reason in EXCLUSIONS.items() if re.fullmatch(pattern, case.name)), None)


SHAPELESS = "elements say which shape the result has"
REFUSALS = {
    **dict.fromkeys(("NonMaxSuppression", "NonZero", "Unique"), SHAPELESS),
    "BitCast": "bits of integers",
    "Bernoulli": "random numbers",
    "CumProd": "running products",
    "DeformConv": "deformed convolutions",
    "Det": "determinants",
    "ImageDecoder": "files of images",
    "TfIdfVectorizer": "lists of words",
    **dict.fromkeys(("OptionalGetElement", "OptionalHasElement"), "sequences and optional values"),
}
"""Operator → why it is not imported."""

EXCLUSIONS: dict[str, str] = {
    r"test_attention_local_window_gqa_rank4_mask(_expanded)?": "softmax in float64",
    r"test_convtranspose_3d": "transposed convolutions slide over one or two axes",
    r"test_batchnorm_.*_training_mode": "statistics are constants",
    r"test_training_dropout.*": "training",
    r"test_pow_types_int.*": "integers are not raised",
    r"test_resize_downsample_scales_(linear|cubic)_align_corners": "corners are aligned as runtimes do",
    r"test_scan_sum": "scans of operator set 9 on have no batch",
    r"test_bitshift_(left|right)_int64": "integers of up to 32 bits are shifted",
    r"test_mvn": "ONNX's inference of its own definition fails",
}
"""Pattern of a test's name → why it is not supported."""


def passing() -> list[Case]:
    """Tests that must pass."""
    return [case for case in cases().values() if outside(case) is None]


def sample(seed: int, count: int) -> list[Case]:
    """Some of the tests that must pass, none twice."""
    known = passing()
    rng = np.random.default_rng(seed)
    return [known[i] for i in sorted(rng.choice(len(known), min(count, len(known)), replace=False))]
