"""Modules of PyTorch as models: `torch.export` reads them, and PyTorch computes the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from autotune.compiler.checking.process import RuntimeFailure
from autotune.compiler.sources import INTERMEDIATES, ModelSource
from autotune.graph.frontends.aten.evaluate import FLOAT32, FLOAT64, Types, evaluate_program
from autotune.graph.frontends.aten.exported import (
    checkpoints,
    decompose,
    import_lowered,
    list_inputs,
    list_outputs,
    lower,
)
from autotune.graph.frontends.aten.modules import Shape, check_shape, export
from autotune.graph.frontends.aten.tensors import dtype_name
from autotune.graph.frontends.onnx.nodes import NodeError
from autotune.graph.ir import Array, Graph
from autotune.graph.precision import FULL
from autotune.graph.unrolling import LEAST_STEPS, unroll
from search_space.dtypes import NARROW
from search_space.ir.intervals import Span


@dataclass(frozen=True)
class ExportedModule:
    """Module as exported by `torch.export`.

    Attributes:
        name: class of the module.
        program: program of ATen's operators.
    """

    name: str
    program: ExportedProgram = field(repr=False)

    @cached_property
    def lowered_program(self) -> ExportedProgram:
        """Program whose operators all have converters to graphs."""
        return lower(self.program)

    @cached_property
    def flat(self) -> ExportedProgram:
        """Program of PyTorch's own operators, without nested graphs."""
        return decompose(self.program, {})


@dataclass(frozen=True)
class TorchSource(ModelSource):
    """Module of PyTorch as a model.

    Attributes:
        exported_module: the module.
        shapes: shapes of the inputs where the program leaves sizes open; None: no size is open.
        watched_nodes: names of nodes of the lowered program that are additional outputs.
        types: map of types to the types that the reference computes in instead.
    """

    exported_module: ExportedModule
    shapes: Mapping[str, Sequence[int]] | None = None
    watched_nodes: Sequence[str] = ()
    types: Types = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        module: torch.nn.Module,
        inputs: Any,
        shapes: Mapping[str, Shape] | None = None,
        sizes: Mapping[str, Span] | None = None,
    ) -> TorchSource:
        """Exports a module, see `autotune.graph.frontends.aten.modules.export`.

        Raises:
            UnsupportedModelError: `torch.export` refuses the module.
        """
        return cls(ExportedModule(type(module).__name__, export(module, inputs, shapes, sizes)))

    @property
    def name(self) -> str:
        return self.exported_module.name

    @property
    def output_names(self) -> Sequence[str]:
        return [*(name for name, _ in list_outputs(self.exported_module.lowered_program)), *self.watched_nodes]

    @property
    def precision(self) -> str:
        return " and ".join(self.narrow_types) or FULL

    @property
    def narrow_types(self) -> tuple[str, ...]:
        values = [node.meta.get("val") for node in self.exported_module.lowered_program.graph.nodes]
        kinds = {dtype_name(value.dtype) for value in values if isinstance(value, torch.Tensor)}
        return tuple(sorted(kinds.intersection(NARROW)))

    @property
    def is_of_one_file(self) -> bool:
        return False

    def at(self, shapes: Mapping[str, Sequence[int]]) -> TorchSource:
        program = self.exported_module.program
        nodes = {node.name: node.meta["val"] for node in program.graph.find_nodes(op="placeholder")}
        own: dict[str, list[int | None]] = {
            name: [extent if isinstance(extent, int) else None for extent in nodes[name].shape]
            for name in list_inputs(program)
        }
        for name, shape in shapes.items():
            check_shape(name, shape, own)
        if all(extent is not None for shape in own.values() for extent in shape):
            return self
        known = {name: [extent for extent in shape if extent is not None] for name, shape in own.items()}
        return replace(self, shapes={**known, **shapes})

    def graph(self, loops: bool = False) -> Graph:
        graph = import_lowered(self.exported_module.lowered_program, self.name, self.shapes, self.watched_nodes)
        return unroll(graph, below=LEAST_STEPS if loops else None)

    def outputs(self, feeds: Mapping[str, Array], threads: int, folder: Path) -> tuple[str, dict[str, Array]]:
        return "PyTorch", self._compute(feeds, self.types)

    def exact_outputs(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        try:
            return self._compute(feeds, FLOAT64)
        except RuntimeError as error:  # PyTorch lacks a kernel
            raise NodeError(str(error).partition("\n")[0]) from error

    def _compute(self, feeds: Mapping[str, Array], types: Types) -> dict[str, Array]:
        outputs = evaluate_program(self.exported_module.flat, feeds, types)
        if self.watched_nodes:
            between = evaluate_program(self.exported_module.lowered_program, feeds, types, self.watched_nodes)
            outputs |= {name: between[name] for name in self.watched_nodes}
        return outputs

    def in_float32(self) -> TorchSource:
        return replace(self, types=FLOAT32)

    def in_floats(self) -> TorchSource:
        return self

    def with_checkpoints(self, count: int = INTERMEDIATES) -> TorchSource:
        return replace(self, watched_nodes=checkpoints(self.exported_module.lowered_program, count))

    def save(self, file: Path) -> None:
        raise RuntimeFailure(
            "other runtimes must be given a model of ONNX, which `torch.onnx.export` writes, but `model` is a module"
        )
