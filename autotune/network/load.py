"""Loading a network: a model imported, optimised, quantised and split into tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from autotune.config import Quantisation
from autotune.graph.attention import with_attention
from autotune.graph.copies import executable_graph
from autotune.graph.importer import import_model, with_weights
from autotune.graph.ir import Graph
from autotune.graph.offload import block_of, offload
from autotune.graph.passes import optimise
from autotune.graph.passes.split_windows import split_windows
from autotune.graph.quantise import (
    MODES,
    Accuracy,
    Options,
    Quantised,
    load_feeds,
    quantise_with_report,
    with_dot_products,
)
from autotune.graph.substitutions import Analytic, Found, explore
from autotune.network.tasks import tasks_of
from autotune.tuning.task import CPU, Task
from targets import registry

SUBSTITUTIONS = 2000
"""Graphs that a search for substitutions may make."""


LEAST = 0.01
"""Part of a network's modelled seconds that substitutions must save; the model cannot tell smaller gains from none."""


@dataclass(frozen=True)
class Network:
    """A model on its way to an executable.

    Attributes:
        name: of the network.
        model: with its weights, as the reference runs it.
        graph: after the passes.
        tasks: distinct workloads, in order of occurrence.
        accuracy: what quantisation cost; None where the network is not quantised.
        found: what the search for substitutions found; None where there was none.
        device: target of the tasks that an accelerator computes; None where there is none.
        target: of all else.
    """

    name: str
    model: onnx.ModelProto
    graph: Graph
    tasks: tuple[Task, ...]
    accuracy: Accuracy | None = None
    found: Found | None = None
    device: str | None = None
    target: str = CPU


def load_network(
    model: onnx.ModelProto,
    name: str,
    seed: int = 0,
    passes: Sequence[str] | None = None,
    quantise: str | None = None,
    how: Quantisation | None = None,
    substitutions: str | None = None,
    device: str | None = None,
    target: str = CPU,
) -> Network:
    """Imports and optimises a model and finds its tasks.

    Args:
        model: shapes known.
        name: of the network.
        seed: of weights that the model does not carry.
        passes: names of passes to run; all by default.
        quantise: one of `quantise.MODES`; None: floats.
        how: of a network to quantise.
        substitutions: `search`, after the passes and before quantisation; None: passes alone.
        device: target of the layers that an accelerator can compute, which needs `shift8`; None: no accelerator.
        target: of all else.

    Raises:
        ModelError: an operator that is not supported, or shapes that are not known.
        GraphError: a network to quantise that has no layers with weights, or none that the device covers.
        ValueError: an unknown `quantise` or `substitutions`, or what `how` says of layers or data that are not there.
    """
    if quantise not in (None, *MODES):
        raise ValueError(f"`quantise` must be one of {', '.join(MODES)} or None, but got quantise={quantise!r}")
    if device is not None and quantise != "shift8":
        raise ValueError(f"`quantise` must be 'shift8' for layers on {device}, but got quantise={quantise!r}")
    if substitutions not in (None, "search"):
        raise ValueError(f"`substitutions` must be 'search' or None, but got substitutions={substitutions!r}")
    whole = with_weights(model, seed)
    graph, accuracy, substituted = optimise(import_model(whole, seed=seed), passes), None, None
    if substitutions is not None:
        substituted = searched(graph)
        graph = substituted.graph
    if quantise is not None:
        found, accuracy = _quantised(graph, seed, how or Quantisation(), quantise)
        graph = found.graph
    if device is not None:
        graph = offload(graph, _block(device))
    graph = with_dot_products(graph)
    on = registry.get(target)
    if passes is None and on.splits_windows:
        graph = split_windows(graph)
    graph = with_attention(graph, on.hardware)
    graph = executable_graph(graph, on.alignment)
    return Network(name, whole, graph, tuple(tasks_of(graph, device, target)), accuracy, substituted, device, target)


def _block(device: str) -> tuple[int, int, int]:
    block = block_of(registry.get(device).hardware)
    if block is None:
        raise ValueError(f"`device` must be a target with a matrix instruction on blocks, but got device={device!r}")
    return block


def searched(graph: Graph) -> Found:
    """What the search for substitutions makes of a graph that the passes left: the same every time."""
    return explore(graph, Analytic(given=frozenset(graph.inputs)), SUBSTITUTIONS, least=LEAST)


def _quantised(graph: Graph, seed: int, how: Quantisation, mode: str) -> tuple[Quantised, Accuracy]:
    feeds = None if how.data is None else load_feeds(Path(how.data), graph.inputs)
    options = Options(how.method, how.per_channel, how.first, how.last, tuple(how.floats), how.least_decibels)
    return quantise_with_report(graph, seed, options, how.inputs, feeds, mode)
