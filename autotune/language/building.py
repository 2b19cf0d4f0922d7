"""Building of a decoder's two executables; compilers are imported only when something is compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from autotune.compiler.build import compile_graph
from autotune.compiler.cache.locations import open_cache
from autotune.compiler.executable.shapes import ShapeSet
from autotune.compiler.executable.weights import Weights
from autotune.compiler.modes import precision_of_all, quantisation_of_weights
from autotune.compiler.options import CompileOptions
from autotune.compiler.pipeline import make_pipeline
from autotune.compiler.schedules import Schedules
from autotune.compiler.selection import Limits
from autotune.config import Measure, Quantisation
from autotune.graph.ir import Array, Graph
from autotune.language.graphs import Decoder
from autotune.language.model import Model
from autotune.language.parts import LEAST, PREFILL, STEP
from autotune.tuner.settings import Settings
from measure.notices import notice_if_slow
from search_space.ir.intervals import Span
from search_space.terms import SizePoint
from targets.arrays import allocate_aligned

COPIES = 4
"""Copies of the weights that fit into the memory reserved: the original, the layout of a step, and two of prompts.

Prompts of other lengths may have further layouts. Then all weights are copied once more at the end.
"""


def make_options(precision: str, quantise: str | None, how: Quantisation) -> CompileOptions:
    """Makes the options of a decoder's graphs.

    Raises:
        ValueError: a precision or a mode of weights that there is not.
    """
    mode = None if quantise is None else quantisation_of_weights(quantise)
    return CompileOptions(precision=precision_of_all(precision), quantise=mode, quantisation=how)


def build_executables(
    model: Model,
    longest: int,
    folder: Path,
    threads: int | None,
    options: CompileOptions,
    cache: str | None,
    states: str = "float32",
) -> Array:
    """Writes the executables of a prompt and of a step to folders in `folder`.

    Args:
        longest: positions at most.
        options: options of the graphs; both graphs share the quantised weights.
        states: dtype of stored keys and values.

    Returns:
        The weights of both, (n,) bytes: those of the step are the first of them, and the prompt's all.
    """
    target, pipeline = options.target, make_pipeline(options, report=False, weight_cache={})
    settings = Settings(target, trials=0, measure=Measure(cache="network", threads=threads))
    # Scales in float16 make a graph one of float16, which has no kernels in bfloat16.
    halves = options.precision.name != "bfloat16"
    decoder = Decoder(model, longest, options.quantisation.activations, halves, states)
    weights = Weights(target.spacing, COPIES * decoder.nbytes)
    least = min(LEAST, longest - 1)
    parts: list[tuple[str, Callable[[int], Graph], Span]] = [
        (STEP, decoder.step, (2, longest)),
        (PREFILL, decoder.prefill, (least, longest)),
    ]
    schedules = Schedules(None, settings, Limits(hardware=target.hardware, open_sizes=True), cache=open_cache(cache))
    with notice_if_slow(f"compiling {model.name} for prompts and steps"):
        for name, graph_of, span in parts:

            def graph_at(point: SizePoint, graph_of: Callable[[int], Graph] = graph_of) -> Graph:
                return pipeline.run(graph_of(*point)).graph

            shapes = ShapeSet.of({"n": span})
            compile_graph(graph_at, schedules, folder / name, settings, shapes, weights, weights_file=False)
    joined = weights.joined_parts
    if isinstance(joined, np.ndarray):
        return joined
    array = allocate_aligned((max(64, weights.nbytes),), "uint8", np.empty)
    np.concatenate(joined, out=array[: weights.nbytes])
    return array
