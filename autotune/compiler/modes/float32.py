"""Networks in float32, or in the types that their models have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.compiler.modes.base import Inputs, Mode
from autotune.graph.ir import Graph
from autotune.graph.passes.pipeline import GraphPass, PassResult
from autotune.graph.quantise import with_byte_layers

if TYPE_CHECKING:
    from autotune.compiler.options import CompileOptions


@dataclass(frozen=True)
class KeepBytes(GraphPass):
    """Pass that runs layers of a model from another quantiser on bytes; its fact lists these layers, or is None."""

    name = "keep_bytes"

    def apply(self, graph: Graph) -> PassResult:
        imported = with_byte_layers(graph)
        return PassResult(graph if imported is None else imported.graph, imported)


class Float32(Mode):
    """Mode in the types of the model; layers are on bytes if another quantiser made them so."""

    name = "float32"

    def early(self, options: CompileOptions, inputs: Inputs) -> Sequence[GraphPass]:
        return (KeepBytes(),) if options.quantise is None else ()
