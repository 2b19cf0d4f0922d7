"""The passes from an imported graph to one that is split into kernels: one list, whichever front end made the graph.

A pass of one's own stands in this list, and is a file besides; see docs/passes.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from autotune.config import Quantisation
from autotune.graph.attention import with_attention
from autotune.graph.copies import executable_graph
from autotune.graph.ir import Graph
from autotune.graph.loops import loops_of
from autotune.graph.mixed import ByteLayers, Mixture, in_types
from autotune.graph.offload import Block, offload
from autotune.graph.passes import optimiser
from autotune.graph.passes.early_means import EarlyMeans
from autotune.graph.passes.pipeline import Explained, FunctionPass, GraphPass, Listener, PassPipeline
from autotune.graph.passes.roundings import roundings
from autotune.graph.passes.split_windows import split_windows
from autotune.graph.precision import lower_precision, narrow_floats
from autotune.graph.quantise import (
    TEST_INPUTS,
    has_roundings,
    is_quantised,
    load_feeds,
    measure_accuracy,
    quantise_weights_only,
    quantise_with_report,
    random_feeds,
    with_byte_layers,
    with_dot_products,
    with_image_words,
)
from autotune.graph.quantise.weights import Known
from autotune.graph.unrolling import LEAST_STEPS, unrolled
from autotune.network.options import CompileOptions, Precision, Quantise
from search_space.hardware import Hardware

SUBSTITUTIONS: Mapping[str, GraphPass] = MappingProxyType({"means": EarlyMeans()})
"""Values of `network.substitutions` → the pass that they ask for; a job may know further ones."""

Choose = Callable[[Graph], Mixture]
"""A graph in float32, after the passes → what of it is in which type."""


@dataclass(frozen=True)
class UnrollLoops(GraphPass):
    """Unrolls loops, all but those that are worth keeping where the target has loops.

    The passes that lower and quantise see no bodies, so that all are unrolled where anything is not in float32.

    Attributes:
        keep: whether loops may stay.
    """

    keep: bool
    name = "unroll_loops"

    def apply(self, graph: Graph) -> Graph:
        parts = [graph, *(node.attrs["body"].graph for node in loops_of(graph))]
        others = any(has_roundings(part) or narrow_floats(part) for part in parts)
        return unrolled(graph, below=LEAST_STEPS if self.keep and not others else None)


@dataclass(frozen=True)
class CheckTypes(GraphPass):
    """Holds the options against the types that a graph has; its fact is the 16-bit floats of the graph."""

    options: CompileOptions = field(repr=False)
    name = "check_types"

    def apply(self, graph: Graph) -> Explained:
        narrow, options = narrow_floats(graph), self.options
        has = f"a model with values in {' and '.join(narrow)}"
        if narrow and options.precision not in (Precision.FLOAT32, *narrow):
            allowed, precision = " or ".join((Precision.FLOAT32, *narrow)), options.precision.value
            raise ValueError(f"`precision` must be {allowed} for {has}, but got {precision!r}")
        mode = None if options.quantise is None else options.quantise.value
        layers = options.quantise is not None and not options.quantise.weights_only
        if narrow and layers:
            raise ValueError(f"`quantise` must be None for {has}, but got quantise={mode!r}")
        if narrow and options.substitutions:
            steps = ", ".join(step.name for step in options.substitutions)
            raise ValueError(f"`substitutions` must be None for {has}, but got {steps}")
        if options.quantise is not None and is_quantised(graph):
            has = "a model that is quantised already"
            raise ValueError(f"`quantise` must be None for {has}, but got quantise={mode!r}")
        return Explained(graph, narrow)


@dataclass(frozen=True)
class QuantiseWeights(GraphPass):
    """Stores weights of products in few bits; its fact is what that costs, where it is measured.

    Attributes:
        mode: weights8 or weights4.
        how: groups and zeros.
        seed: of the inputs that accuracy is measured on.
        report: whether it is measured.
        known: weights that are quantised already, which graphs of one model share; None: each graph has its own.
    """

    mode: Quantise
    how: Quantisation = field(repr=False)
    seed: int
    report: bool
    known: Known | None = field(default=None, repr=False)
    name = "quantise"

    def apply(self, graph: Graph) -> Explained:
        result = quantise_weights_only(graph, self.mode, self.how, self.known)
        if not self.report:
            return Explained(result.graph, None)
        if self.how.data is None:
            feeds = random_feeds(graph.inputs, self.seed + 1, TEST_INPUTS)
        else:
            feeds = load_feeds(Path(self.how.data), graph.inputs)
        return Explained(result.graph, measure_accuracy(graph, result, feeds))


@dataclass(frozen=True)
class QuantiseLayers(GraphPass):
    """Has layers compute with bytes; its fact is what that costs.

    Attributes:
        mode: int8 or shift8.
        how: calibration.
        seed: of the inputs that it is calibrated and measured on.
    """

    mode: Quantise
    how: Quantisation = field(repr=False)
    seed: int
    name = "quantise"

    def apply(self, graph: Graph) -> Explained:
        feeds = None if self.how.data is None else load_feeds(Path(self.how.data), graph.inputs)
        result, accuracy = quantise_with_report(graph, self.seed, self.how, feeds, self.mode)
        return Explained(result.graph, accuracy)


@dataclass(frozen=True)
class KeepBytes(GraphPass):
    """Has the layers of a model that another quantiser made work on bytes; its fact is which; None: another model."""

    name = "keep_bytes"

    def apply(self, graph: Graph) -> Explained:
        imported = with_byte_layers(graph)
        return Explained(graph if imported is None else imported.graph, imported)


@dataclass(frozen=True)
class Offload(GraphPass):
    """Gives an accelerator the layers that fill the blocks of its instruction."""

    block: Block
    name = "offload"

    def apply(self, graph: Graph) -> Graph:
        return offload(graph, self.block)


@dataclass(frozen=True)
class FuseAttention(GraphPass):
    """Makes products, softmax and products one node, where the machine gains by it."""

    hardware: Hardware = field(repr=False)
    name = "fuse_attention"

    def apply(self, graph: Graph) -> Graph:
        return with_attention(graph, self.hardware)


@dataclass(frozen=True)
class RoundOnce(GraphPass):
    """Has each kernel of a graph with 16-bit floats round once, as it writes."""

    name = "round_once"

    def apply(self, graph: Graph) -> Graph:
        return roundings(graph) if narrow_floats(graph) else graph


@dataclass(frozen=True)
class ChooseTypes(GraphPass):
    """Gives each kernel the type that is chosen for it; its fact is the choice.

    Attributes:
        choose: makes the choice.
        how: of layers that may be in int8.
        seed: of their calibration.
    """

    choose: Choose = field(repr=False)
    how: Quantisation = field(repr=False)
    seed: int
    name = "choose_types"

    def apply(self, graph: Graph) -> Explained:
        mixture = self.choose(graph)
        layers = ByteLayers.of(graph, self.seed, self.how) if mixture.int8 else None
        return Explained(in_types(graph, mixture.dtype, mixture.narrow, mixture.int8, layers), mixture)


@dataclass(frozen=True)
class LowerPrecision(GraphPass):
    """Lowers what a graph has in float32 to a 16-bit float."""

    precision: Precision
    name = "lower_precision"

    def apply(self, graph: Graph) -> Graph:
        return lower_precision(graph, self.precision)


@dataclass(frozen=True)
class CopyViews(GraphPass):
    """Copies what kernels cannot read or write in place: outputs that are views, and parts that lie unaligned.

    Attributes:
        alignment: bytes.
    """

    alignment: int
    name = "copy_views"

    def apply(self, graph: Graph) -> Graph:
        return executable_graph(graph, self.alignment)


def pipeline_of(
    options: CompileOptions,
    choose: Choose | None = None,
    report: bool = True,
    known: Known | None = None,
    listener: Listener | None = None,
) -> PassPipeline:
    """Lists the passes that options ask for.

    Args:
        options: how to compile.
        choose: makes the choice of mixed precision.
        report: whether it is measured what weights of few bits cost.
        known: weights in few bits that other graphs of the model have quantised already.
        listener: called after each pass.

    Raises:
        ValueError: `choose` without mixed precision or the reverse, an unknown pass, or a device without blocks.
    """
    mixed = options.precision is Precision.MIXED
    if (choose is None) == mixed:
        raise ValueError(
            f"`choose` must be given for mixed precision alone, but got precision={options.precision.value!r}"
        )
    target, how, seed = options.target, options.quantisation, options.seed
    floats = options.precision is Precision.FLOAT32
    passes: list[GraphPass] = [
        UnrollLoops(options.plain and target.loops),
        optimiser(options.passes),
        CheckTypes(options),
    ]
    passes += options.substitutions
    if options.quantise is not None and options.quantise.weights_only:
        passes.append(QuantiseWeights(options.quantise, how, seed, report, known))
    elif options.quantise is not None and not mixed:
        passes.append(QuantiseLayers(options.quantise, how, seed))
    if options.quantise is None and floats:
        passes.append(KeepBytes())
    if options.block is not None:
        passes.append(Offload(options.block))
    passes += _for_kernels(options)
    if choose is not None:
        passes.append(ChooseTypes(choose, how, seed))
    elif not floats:
        passes.append(LowerPrecision(options.precision))
    return PassPipeline((*passes, CopyViews(target.alignment)), listener)


def _for_kernels(options: CompileOptions) -> Sequence[GraphPass]:
    """Lists the passes to the operations that a target has kernels for."""
    target = options.target
    passes: list[GraphPass] = [FunctionPass("dot_products", with_dot_products)]
    if target.hardware.kind == "cpu":
        passes.append(FunctionPass("image_words", with_image_words))
    if options.passes is None and target.splits_windows:
        passes.append(FunctionPass("split_windows", split_windows))
    return (*passes, FuseAttention(target.hardware), RoundOnce())
