"""Choice of a network's precision, kernel by kernel: times, sensitivities, search, and the check of the combination."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autotune.compiler.checking.process import NetworkProcess, RuntimeFailure
from autotune.compiler.mixed.type_problem import BYTES, Seconds, make_problem
from autotune.compiler.mixed.type_resolution import NARROW, candidates, resolve_types
from autotune.compiler.selection import Limits
from autotune.compiler.sources import ModelSource
from autotune.config import Quantisation
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Array, Graph
from autotune.graph.mixed import (
    ByteLayers,
    Mixture,
    Problem,
    float_outputs,
    graph_digest,
    in_types,
    list_rounding_sites,
    noise_between,
    sensitivities,
    to,
)
from autotune.graph.mixed.assignment import Choice, make_point
from autotune.graph.quantise import TEST_INPUTS, load_feeds, random_feeds
from autotune.tuner.settings import Settings
from search_space.extras import require
from search_space.scratch import ScratchFolder

AS_OPENVINO = "as openvino"
"""Value for the accuracy of OpenVINO as installed, which computes in bfloat16 if the processor has it."""

DEFAULT = 40.0
"""Default of `network.accuracy`, in decibels."""

INPUTS = 2
"""Number of input sets that noise is measured on."""


@dataclass(frozen=True)
class Chooser:
    """Function that chooses the kernels of a network in 16 bits, and in int8 if allowed.

    Attributes:
        settings: settings of the run.
        limits: limits of algorithms.
        accuracy: decibels, or `AS_OPENVINO`.
        records: file of measurements, which may be missing.
        data: file of inputs; None: random inputs.
        earlier: file of an earlier choice, used if it is for the same graph and accuracy; None: no file.
        int8: quantisation of layers that may be in int8; None: no layer may.
    """

    settings: Settings
    limits: Limits
    accuracy: float | str = DEFAULT
    records: Path | None = None
    data: Path | None = None
    earlier: Path | None = None
    int8: Quantisation | None = None

    def __call__(self, graph: Graph, source: ModelSource) -> Mixture:
        """Chooses the types for a graph in float32, after the passes.

        Args:
            graph: graph of the network.
            source: model that it was made of.

        Raises:
            MissingExtra: SciPy, which solves the integer program, is not installed.
            ValueError: no output is in floats, inputs do not fit, the stored choice cannot be read, or OpenVINO is
                missing and its accuracy was requested.
        """
        if (before := self._before(graph)) is not None:
            return before
        require("mixed precision", "scipy")
        if not float_outputs(graph):
            raise ValueError("`precision` must be of one type for a network without outputs in float32, but got mixed")
        layers = None if self.int8 is None else ByteLayers.of(graph, self.settings.seed, self.int8)
        feeds = self._feeds(graph)
        exact = [compute_outputs(graph, feed) for feed in feeds]
        wanted = self._decibels(source, graph, feeds, exact)
        sites = list_rounding_sites(graph)
        with progress("sensitivities") as tell:
            noise = sensitivities(graph, sites, feeds, to(NARROW), tell)
            on_bytes = None if layers is None else sensitivities(graph, layers.sites, feeds, layers.round_value, tell)
        seconds = Seconds(graph, layers, self.settings, self.limits, self.records)
        problem = make_problem(seconds, sites, noise, on_bytes)

        def typed_graph(choice: Choice) -> Graph:
            narrow, in_bytes = (_list_kernels(problem, choice, kind) for kind in (1, BYTES))
            return in_types(graph, NARROW, narrow, in_bytes, layers)

        def loud(choice: Choice) -> float:
            return _noise(graph, typed_graph(choice), feeds, exact)

        allowed = 10 ** (-wanted / 10)
        choice, measured = resolve_types(problem, allowed, loud)
        if (choice == BYTES).any():  # the sum of seconds is inexact: kernels depend on their neighbours' types
            without = replace(problem, may=problem.may & (np.arange(problem.may.shape[1]) < BYTES))
            other, noise_of_other = resolve_types(without, allowed, loud)
            if seconds.of(typed_graph(other)) <= seconds.of(typed_graph(choice)):
                choice, measured = other, noise_of_other
        point = make_point(problem, choice)
        return Mixture(
            NARROW,
            _list_kernels(problem, choice, 0),
            _list_kernels(problem, choice, 1),
            wanted,
            self.accuracy,
            point.decibels,
            -10 * math.log10(measured) if measured > 0 else math.inf,
            len(feeds),
            seconds.of(typed_graph(choice)) if (choice == BYTES).any() else seconds.in_float32 - point.savings,
            candidates(problem, seconds.in_float32),
            graph_digest(graph),
            _list_kernels(problem, choice, BYTES),
            self.int8 is not None,
        )

    def _before(self, graph: Graph) -> Mixture | None:
        if self.earlier is None or not self.earlier.exists():
            return None
        try:
            earlier = Mixture.from_json(json.loads(self.earlier.read_text()))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"`{self.earlier}` must be a choice that a run wrote, but reading it failed: {error}"
            ) from None
        asked = (graph_digest(graph), self.accuracy, self.int8 is not None)
        return earlier if (earlier.graph, earlier.bound, earlier.bytes_allowed) == asked else None

    def _feeds(self, graph: Graph) -> Sequence[Mapping[str, Array]]:
        """Returns inputs to measure noise on, which differ from those that bytes are calibrated on."""
        if self.data is None:
            return random_feeds(graph.inputs, self.settings.seed + (self.int8 is not None), INPUTS)
        sets = load_feeds(self.data, graph.inputs)
        chosen = sets[:INPUTS] if self.int8 is None else sets[-TEST_INPUTS:]
        if not chosen:
            raise ValueError(f"`data` must hold at least one set of inputs, but got none in {self.data}")
        return chosen

    def _decibels(
        self,
        source: ModelSource,
        graph: Graph,
        feeds: Sequence[Mapping[str, Array]],
        exact: Sequence[Mapping[str, Array]],
    ) -> float:
        if not isinstance(self.accuracy, str):
            return float(self.accuracy)
        found = openvino_outputs(source, feeds, self.settings.threads)
        named = dict(zip(source.output_names, graph.outputs, strict=True))
        noise = noise_between([{named[name]: a for name, a in each.items() if name in named} for each in found], exact)
        worst = max(noise.values())
        return -10 * math.log10(worst) if worst > 0 else math.inf


def openvino_outputs(source: ModelSource, feeds: Sequence[Mapping[str, Array]], threads: int) -> list[dict[str, Array]]:
    """Computes outputs by OpenVINO without a hint of the precision, for each set of inputs.

    Raises:
        ValueError: OpenVINO is not installed, or does not run the model.
    """
    with ScratchFolder("accuracy") as place:
        file = Path(place) / "model.onnx"
        try:
            source.save(file)
            with NetworkProcess("openvino-as-installed", threads, model=str(file)) as process:
                return [process.infer(feed) for feed in feeds]
        except RuntimeFailure as error:
            raise ValueError(
                f"`accuracy` must be decibels where OpenVINO does not run the model, but got {AS_OPENVINO!r}: {error}"
            ) from None


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a progress bar on a terminal; yields a function of the steps done and their total."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def compute_outputs(graph: Graph, feed: Mapping[str, Array]) -> dict[str, Array]:
    """Computes the outputs by name."""
    values = evaluate(graph, feed)
    return {name: values[name] for name in graph.outputs}


def _list_kernels(problem: Problem, choice: Choice, kind: int) -> tuple[str, ...]:
    """Lists the kernels of one type."""
    return tuple(name for name, each in zip(problem.kernels, choice, strict=True) if each == kind)


def _noise(
    graph: Graph, typed_graph: Graph, feeds: Sequence[Mapping[str, Array]], exact: Sequence[Mapping[str, Array]]
) -> float:
    named = dict(zip(typed_graph.outputs, graph.outputs, strict=True))
    found = ({named[name]: array for name, array in compute_outputs(typed_graph, feed).items()} for feed in feeds)
    return max(noise_between(list(found), exact).values())
