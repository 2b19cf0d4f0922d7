"""Networks whose layers compute with bytes, see docs/quantisation.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.compiler.modes.base import Inputs, Mode
from autotune.config import Quantisation
from autotune.graph.ir import Graph
from autotune.graph.offload import Block, offload
from autotune.graph.passes.pipeline import GraphPass, PassResult
from autotune.graph.quantise import load_feeds, quantise_with_report

if TYPE_CHECKING:
    from autotune.compiler.options import CompileOptions


@dataclass(frozen=True)
class QuantiseLayers(GraphPass):
    """Pass that makes layers compute with bytes; its fact is the resulting error.

    Attributes:
        mode: int8 or shift8.
        how: calibration.
        seed: seed of the inputs for calibration and measurement.
    """

    mode: str
    how: Quantisation = field(repr=False)
    seed: int
    name = "quantise"

    def apply(self, graph: Graph) -> PassResult:
        feeds = None if self.how.data is None else load_feeds(Path(self.how.data), graph.inputs)
        result, accuracy = quantise_with_report(graph, self.seed, self.how, feeds, self.mode)
        return PassResult(result.graph, accuracy)


@dataclass(frozen=True)
class Offload(GraphPass):
    """Pass that assigns to an accelerator the layers that fill the blocks of its instruction."""

    block: Block
    name = "offload"

    def apply(self, graph: Graph) -> Graph:
        return offload(graph, self.block)


class Int8(Mode):
    """Mode whose layers multiply bytes and add up 32-bit integers; scales are floats."""

    name = "int8"
    open_sizes = False
    narrow_models = False

    def early(self, options: CompileOptions, inputs: Inputs) -> Sequence[GraphPass]:
        if options.precision.chooses:  # the choice of types decides which layers are in bytes
            return ()
        return (QuantiseLayers(self.name, options.quantisation, options.seed),)


class Shift8(Int8):
    """Mode whose layers multiply bytes and shift sums, like accelerators without floats."""

    name = "shift8"

    def check(self, options: CompileOptions) -> None:
        if options.precision.name != "float32":
            given = options.precision.name
            raise ValueError(f"`precision` must be float32 beside quantise='shift8', but got precision={given!r}")

    def early(self, options: CompileOptions, inputs: Inputs) -> Sequence[GraphPass]:
        passes = super().early(options, inputs)
        return passes if options.block is None else (*passes, Offload(options.block))
