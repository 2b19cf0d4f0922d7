"""Networks in mixed precision: the type of each kernel is chosen, see docs/precision.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autotune.compiler.modes.base import Choose, Inputs, Mode
from autotune.config import Quantisation
from autotune.graph.ir import Graph
from autotune.graph.mixed import ByteLayers, in_types
from autotune.graph.passes.pipeline import GraphPass, PassResult

if TYPE_CHECKING:
    from autotune.compiler.options import CompileOptions


@dataclass(frozen=True)
class ChooseTypes(GraphPass):
    """Pass that converts each kernel to the type chosen for it; its fact is the choice.

    Attributes:
        choose: function that makes the choice.
        how: quantisation of layers that may be in int8.
        seed: seed of their calibration.
    """

    choose: Choose = field(repr=False)
    how: Quantisation = field(repr=False)
    seed: int
    name = "choose_types"

    def apply(self, graph: Graph) -> PassResult:
        mixture = self.choose(graph)
        layers = ByteLayers.of(graph, self.seed, self.how) if mixture.int8 else None
        return PassResult(in_types(graph, mixture.dtype, mixture.narrow, mixture.int8, layers), mixture)


class Mixed(Mode):
    """Mode of float32, bfloat16, and int8 beside `quantise: int8`: the fastest kernels that are accurate enough."""

    name = "mixed"
    open_sizes = False

    def check(self, options: CompileOptions) -> None:
        if options.quantise is not None and options.quantise.name != "int8":
            given = options.quantise.name
            raise ValueError(f"`quantise` must be int8 or None beside mixed precision, but got quantise={given!r}")

    def late(self, options: CompileOptions, inputs: Inputs) -> Sequence[GraphPass]:
        assert inputs.choose is not None
        return (ChooseTypes(inputs.choose, options.quantisation, options.seed),)
