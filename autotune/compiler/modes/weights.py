"""Networks whose products read weights of few bits and compute in floats, see docs/quantisation.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.compiler.modes.base import Inputs, Mode
from autotune.config import Quantisation
from autotune.graph.ir import Graph
from autotune.graph.passes.pipeline import GraphPass, PassResult
from autotune.graph.quantise import TEST_INPUTS, load_feeds, measure_accuracy, quantise_weights_only, random_feeds
from autotune.graph.quantise.weights import QuantisedWeightCache

if TYPE_CHECKING:
    from autotune.compiler.options import CompileOptions


@dataclass(frozen=True)
class QuantiseWeights(GraphPass):
    """Pass that stores weights of products in few bits; its fact is the resulting error, if it is measured.

    Attributes:
        mode: weights8 or weights4.
        how: groups and zeros.
        seed: seed of the inputs that accuracy is measured on.
        report: whether to measure accuracy.
        weight_cache: weights that are quantised already, which graphs of one model share; None: each graph has its own.
    """

    mode: str
    how: Quantisation = field(repr=False)
    seed: int
    report: bool
    weight_cache: QuantisedWeightCache | None = field(default=None, repr=False)
    name = "quantise"

    def apply(self, graph: Graph) -> PassResult:
        result = quantise_weights_only(graph, self.mode, self.how, self.weight_cache)
        if not self.report:
            return PassResult(result.graph, None)
        if self.how.data is None:
            feeds = random_feeds(graph.inputs, self.seed + 1, TEST_INPUTS)
        else:
            feeds = load_feeds(Path(self.how.data), graph.inputs)
        return PassResult(result.graph, measure_accuracy(graph, result, feeds))


class Weights8(Mode):
    """Mode whose products read weights of 8 bits and compute in floats."""

    name = "weights8"
    weights_only = True

    def early(self, options: CompileOptions, inputs: Inputs) -> Sequence[GraphPass]:
        return (QuantiseWeights(self.name, options.quantisation, options.seed, inputs.report, inputs.weight_cache),)


class Weights4(Weights8):
    """Mode whose products read weights of 4 bits and compute in floats."""

    name = "weights4"
