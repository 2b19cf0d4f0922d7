"""The passes from an imported graph to one that is split into kernels: one list for all front ends.

A new pass is a file and an entry of this list; see docs/passes.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from autotune.compiler.block_choice import ChooseBlocks, Seconds, never_measured
from autotune.compiler.modes.base import Choose, Inputs
from autotune.compiler.options import CompileOptions
from autotune.graph.attention import with_attention
from autotune.graph.copies import executable_graph
from autotune.graph.ir import Graph
from autotune.graph.loops import list_loops
from autotune.graph.passes import optimiser
from autotune.graph.passes.early_means import EarlyMeans
from autotune.graph.passes.joined_products import joined_products
from autotune.graph.passes.pipeline import FunctionPass, GraphPass, Listener, PassPipeline, PassResult
from autotune.graph.passes.roundings import roundings
from autotune.graph.passes.split_windows import split_windows
from autotune.graph.precision import FULL, narrow_floats
from autotune.graph.quantise import (
    has_roundings,
    is_quantised,
    with_dot_products,
    with_image_words,
)
from autotune.graph.quantise.weights import QuantisedWeightCache
from autotune.graph.unrolling import LEAST_STEPS, unroll
from search_space.former_names import former_attributes
from search_space.hardware import Hardware

SUBSTITUTIONS: Mapping[str, GraphPass] = MappingProxyType({"means": EarlyMeans()})
"""Values of `network.substitutions` → the pass of each; a job may know further ones."""


@dataclass(frozen=True)
class UnrollLoops(GraphPass):
    """Pass that unrolls loops, except those that are worth keeping if the target has loops.

    The passes that lower and quantise see no bodies, so that all loops are unrolled if anything is not in float32.

    Attributes:
        keep: whether loops may stay.
    """

    keep: bool
    name = "unroll_loops"

    def apply(self, graph: Graph) -> Graph:
        parts = [graph, *(node.attrs["body"].graph for node in list_loops(graph))]
        others = any(has_roundings(part) or narrow_floats(part) for part in parts)
        return unroll(graph, below=LEAST_STEPS if self.keep and not others else None)


@dataclass(frozen=True)
class CheckTypes(GraphPass):
    """Pass that checks the options against the types of a graph; its fact is the 16-bit floats of the graph."""

    options: CompileOptions = field(repr=False)
    name = "check_types"

    def apply(self, graph: Graph) -> PassResult:
        narrow, options = narrow_floats(graph), self.options
        has = f"a model with values in {' and '.join(narrow)}"
        if narrow and options.precision.name not in (FULL, *narrow):
            allowed, precision = " or ".join((FULL, *narrow)), options.precision.name
            raise ValueError(f"`precision` must be {allowed} for {has}, but got {precision!r}")
        mode = None if options.quantise is None else options.quantise.name
        if narrow and options.quantise is not None and not options.quantise.narrow_models:
            raise ValueError(f"`quantise` must be None for {has}, but got quantise={mode!r}")
        if narrow and options.substitutions:
            steps = ", ".join(step.name for step in options.substitutions)
            raise ValueError(f"`substitutions` must be None for {has}, but got {steps}")
        if options.quantise is not None and is_quantised(graph):
            has = "a model that is quantised already"
            raise ValueError(f"`quantise` must be None for {has}, but got quantise={mode!r}")
        return PassResult(graph, narrow)


@dataclass(frozen=True)
class FuseAttention(GraphPass):
    """Pass that fuses products, softmax and products to one node, where that is faster on the machine."""

    hardware: Hardware = field(repr=False)
    name = "fuse_attention"

    def apply(self, graph: Graph) -> Graph:
        return with_attention(graph, self.hardware)


@dataclass(frozen=True)
class RoundOnce(GraphPass):
    """Pass that lets each kernel of a graph with 16-bit floats round once, when it writes."""

    name = "round_once"

    def apply(self, graph: Graph) -> Graph:
        return roundings(graph) if narrow_floats(graph) else graph


@dataclass(frozen=True)
class CopyViews(GraphPass):
    """Pass that copies values that kernels cannot read or write in place: outputs that are views, and unaligned parts.

    Attributes:
        alignment: alignment in bytes.
    """

    alignment: int
    name = "copy_views"

    def apply(self, graph: Graph) -> Graph:
        return executable_graph(graph, self.alignment)


def make_pipeline(
    options: CompileOptions,
    choose: Choose | None = None,
    report: bool = True,
    weight_cache: QuantisedWeightCache | None = None,
    listener: Listener | None = None,
    block_seconds: Seconds = never_measured,
) -> PassPipeline:
    """Lists the passes for the options.

    Args:
        options: options of the compilation.
        choose: function that makes the choice of mixed precision.
        report: whether to measure the error due to weights of few bits.
        weight_cache: weights in few bits that other graphs of the model have quantised already.
        listener: function that is called after each pass.
        block_seconds: measured seconds of kernels with sparse weights.

    Raises:
        ValueError: `choose` comes without mixed precision or the reverse, a pass is unknown, or the device has no
            blocks.
    """
    precision, quantise, target = options.precision, options.quantise, options.target
    if (choose is not None) != precision.chooses:
        raise ValueError(f"`choose` must be given for mixed precision alone, but got precision={precision.name!r}")
    inputs = Inputs(choose, report, weight_cache)
    modes = (precision,) if quantise is None else (quantise, precision)
    sparsity = options.sparsity
    sparse = () if sparsity is None else (ChooseBlocks(sparsity, target.alignment, block_seconds),)
    passes = (
        UnrollLoops(options.plain and target.loops),
        optimiser(options.passes),
        CheckTypes(options),
        *options.substitutions,
        *(step for mode in modes for step in mode.early(options, inputs)),
        *_for_kernels(options),
        *(step for mode in modes for step in mode.late(options, inputs)),
        *sparse,
        CopyViews(target.alignment),
    )
    return PassPipeline(passes, listener)


def _for_kernels(options: CompileOptions) -> Sequence[GraphPass]:
    """Lists the passes to the operations that a target has kernels for."""
    target = options.target
    passes: list[GraphPass] = [FunctionPass("dot_products", with_dot_products)]
    if target.hardware.kind == "cpu":
        passes.append(FunctionPass("image_words", with_image_words))
    if options.passes is None and target.splits_windows:
        passes.append(FunctionPass("split_windows", split_windows))
    if options.passes is None and target.hardware.kind == "cpu":
        passes.append(FunctionPass("joined_products", partial(joined_products, alignment=target.alignment)))
    return (*passes, FuseAttention(target.hardware), RoundOnce())


if not TYPE_CHECKING:
    __getattr__ = former_attributes(__name__, {"pipeline_of": "make_pipeline"})
