"""Models as front ends read them: each has a graph, and outputs computed by another runtime."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import onnx
from onnx import TensorProto

from autotune.compiler.checking.reference import reference_outputs
from autotune.graph.frontends.onnx.file import is_of_one_file
from autotune.graph.frontends.onnx.float64 import evaluate_in_float64
from autotune.graph.frontends.onnx.full_precision import in_float32, narrow_types
from autotune.graph.frontends.onnx.importer import import_model, with_weights
from autotune.graph.frontends.onnx.importer.nbits import in_floats
from autotune.graph.frontends.onnx.model import with_shapes
from autotune.graph.ir import Array, Graph
from autotune.graph.precision import FULL
from autotune.titles import INT8

_QUANTISED_OPERATORS = {
    "QuantizeLinear",
    "DynamicQuantizeLinear",
    "ConvInteger",
    "MatMulInteger",
    "QLinearConv",
    "QLinearMatMul",
}
_NARROW = {TensorProto.BFLOAT16: "bfloat16", TensorProto.FLOAT16: "float16"}

INTERMEDIATES = 3
"""Number of values in between that a check compares."""


class ModelSource(ABC):
    """A model with its weights, before it is a graph."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the network; "" if the model has no name."""

    @property
    @abstractmethod
    def output_names(self) -> Sequence[str]:
        """Names of the outputs, in order."""

    @property
    @abstractmethod
    def precision(self) -> str:
        """Type that the model multiplies, as results name it: int8, its 16-bit floats, or float32."""

    @property
    @abstractmethod
    def narrow_types(self) -> tuple[str, ...]:
        """Names of the 16-bit floats that the model has values of, sorted."""

    @property
    @abstractmethod
    def is_of_one_file(self) -> bool:
        """Tells whether all of the model is in the file that it was read from."""

    @abstractmethod
    def at(self, shapes: Mapping[str, Sequence[int]]) -> ModelSource:
        """Fixes shapes of inputs by name, where the model leaves sizes open.

        Raises:
            UnsupportedModelError: shapes remain open, or disagree with the model.
        """

    @abstractmethod
    def graph(self, loops: bool = False) -> Graph:
        """Imports the model.

        Args:
            loops: whether loops of many steps remain loops.

        Raises:
            UnsupportedModelError: an operator is not supported.
        """

    @abstractmethod
    def outputs(self, feeds: Mapping[str, Array], threads: int, folder: Path) -> tuple[str, dict[str, Array]]:
        """Computes the outputs by another runtime.

        Args:
            feeds: inputs by name.
            threads: number of threads of the runtime.
            folder: folder of files that are handed over.

        Returns:
            The runtime's name, and the outputs by name.

        Raises:
            RuntimeFailure: the runtime fails for another reason than an operator that it lacks.
        """

    @abstractmethod
    def exact_outputs(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Computes the outputs by name, every float32 in float64.

        Raises:
            NodeError: an operator cannot be computed in float64.
        """

    @abstractmethod
    def in_float32(self) -> ModelSource:
        """Makes the same model with float32 in place of 16-bit floats."""

    @abstractmethod
    def in_floats(self) -> ModelSource:
        """Makes the same model with products of floats in place of those that round their data to bytes."""

    @abstractmethod
    def with_checkpoints(self, count: int = INTERMEDIATES) -> ModelSource:
        """Makes the same model with further outputs: the data of a last softmax, and `count` values in between."""

    @abstractmethod
    def save(self, file: Path) -> None:
        """Writes the model as an ONNX file, which other runtimes open.

        Raises:
            RuntimeFailure: the model cannot be saved as ONNX.
        """


@dataclass(frozen=True)
class OnnxSource(ModelSource):
    """A model of ONNX.

    Attributes:
        proto: model with its weights and all shapes, or with the shapes that `at` completes.
        seed: seed of weights that the model does not carry.
    """

    proto: onnx.ModelProto = field(repr=False)
    seed: int = 0

    @classmethod
    def of(cls, proto: onnx.ModelProto, seed: int) -> Self:
        """Makes a source of a model of known shapes; adds seeded weights where it has none."""
        return cls(with_weights(proto, seed), seed)

    @property
    def name(self) -> str:
        return self.proto.graph.name

    @property
    def output_names(self) -> Sequence[str]:
        return [value.name for value in self.proto.graph.output]

    @property
    def precision(self) -> str:
        graph = self.proto.graph
        if any(node.op_type in _QUANTISED_OPERATORS for node in graph.node):
            return INT8
        kinds = {tensor.data_type for tensor in graph.initializer}
        kinds |= {value.type.tensor_type.elem_type for value in graph.input}
        return " and ".join(sorted(name for kind, name in _NARROW.items() if kind in kinds)) or FULL

    @property
    def narrow_types(self) -> tuple[str, ...]:
        return narrow_types(self.proto)

    @property
    def is_of_one_file(self) -> bool:
        return is_of_one_file(self.proto)

    def at(self, shapes: Mapping[str, Sequence[int]]) -> OnnxSource:
        return OnnxSource(with_shapes(self.proto, shapes), self.seed)

    def graph(self, loops: bool = False) -> Graph:
        return import_model(self.proto, self.seed, loops)

    def outputs(self, feeds: Mapping[str, Array], threads: int, folder: Path) -> tuple[str, dict[str, Array]]:
        return reference_outputs(self.proto, self.graph(), feeds, threads, folder)

    def exact_outputs(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return evaluate_in_float64(self.proto, feeds)

    def in_float32(self) -> OnnxSource:
        return OnnxSource(in_float32(self.proto), self.seed)

    def in_floats(self) -> OnnxSource:
        return OnnxSource(in_floats(self.proto), self.seed)

    def with_checkpoints(self, count: int = INTERMEDIATES) -> OnnxSource:
        return OnnxSource(with_checkpoints(self.proto, count)[0], self.seed)

    def save(self, file: Path) -> None:
        onnx.save(self.proto, file)


def with_checkpoints(model: onnx.ModelProto, count: int = INTERMEDIATES) -> tuple[onnx.ModelProto, list[str]]:
    """Copies a model with additional outputs: the data of a last softmax, and `count` values spread over the network.

    Returns:
        The model, and the names of the added outputs.
    """
    out = onnx.ModelProto()
    out.CopyFrom(model)
    output_names = {value.name for value in out.graph.output}
    nodes = [node for node in out.graph.node if node.op_type not in ("Constant", "ConstantOfShape", "Shape")]
    wanted = [node.input[0] for node in nodes if node.op_type == "Softmax" and node.output[0] in output_names]
    floats = _float_values(out)
    steps = [node.output[0] for node in nodes if node.op_type in ("Relu", "Add", "Sum", "Conv", "MatMul", "Clip")]
    steps = [name for name in steps if name in floats and name not in output_names]
    wanted += [steps[len(steps) * (i + 1) // (count + 1)] for i in range(count) if steps]
    chosen = {name for name in wanted if name not in output_names and name in floats}
    added = [name for node in nodes for name in node.output if name in chosen]
    out.graph.output.extend(floats[name] for name in added)
    return out, added


def _float_values(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    known = {value.name: value for value in model.graph.value_info}
    return {n: v for n, v in known.items() if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}
