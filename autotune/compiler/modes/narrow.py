"""Networks in a 16-bit float, see docs/precision.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.compiler.modes.base import Inputs, Mode
from autotune.graph.ir import Graph
from autotune.graph.passes.pipeline import GraphPass
from autotune.graph.precision import lower_precision

if TYPE_CHECKING:
    from autotune.compiler.options import CompileOptions


@dataclass(frozen=True)
class LowerPrecision(GraphPass):
    """Pass that lowers the float32 values of a graph to a 16-bit float.

    Attributes:
        precision: name of the type.
    """

    precision: str
    name = "lower_precision"

    def apply(self, graph: Graph) -> Graph:
        return lower_precision(graph, self.precision)


class BFloat16(Mode):
    """Mode whose layers multiply bfloat16 and add up float32; values between kernels are stored in bfloat16."""

    name = "bfloat16"

    def late(self, options: CompileOptions, inputs: Inputs) -> Sequence[GraphPass]:
        return (LowerPrecision(self.name),)


class Float16(BFloat16):
    """Mode whose layers multiply float16 and add up float32; values between kernels are stored in float16."""

    name = "float16"
