"""Loading a network: a model imported, optimised, quantised and split into tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from autotune.config import Quantisation
from autotune.graph.copies import executable_graph
from autotune.graph.importer import import_model, with_weights
from autotune.graph.ir import Graph
from autotune.graph.mixed import ByteLayers, Mixture, in_types
from autotune.graph.offload import block_of, offload
from autotune.graph.passes import optimise
from autotune.graph.precision import FULL, MIXED, PRECISIONS, lower_precision, narrow_floats
from autotune.graph.quantise import (
    BITS,
    MODES,
    TEST_INPUTS,
    Accuracy,
    Imported,
    Quantised,
    is_quantised,
    load_feeds,
    measure_accuracy,
    quantise_weights_only,
    quantise_with_report,
    random_feeds,
    with_byte_layers,
)
from autotune.graph.substitutions import Analytic, Found, explore
from autotune.network.prepare import check_precision, for_kernels, with_loops
from autotune.network.tasks import tasks_of
from autotune.tuning.task import CPU, Task
from targets import registry
from targets.base import Target

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
        precision: what layers multiply and values between kernels are stored in; of a model that has 16-bit floats
            these, though parts of it may be in float32.
        mixture: what of it is in which type, where that is mixed.
        imported: of a model that another quantiser made, which layers work on bytes; None of another one.
    """

    name: str
    model: onnx.ModelProto
    graph: Graph
    tasks: tuple[Task, ...]
    accuracy: Accuracy | None = None
    found: Found | None = None
    device: str | None = None
    precision: str = FULL
    mixture: Mixture | None = None
    imported: Imported | None = None


def load_network(
    model: onnx.ModelProto,
    name: str,
    seed: int = 0,
    passes: Sequence[str] | None = None,
    quantise: str | None = None,
    how: Quantisation | None = None,
    substitutions: str | None = None,
    device: str | None = None,
    target: Target | None = None,
    precision: str = FULL,
    choose: Callable[[Graph, onnx.ModelProto], Mixture] | None = None,
    report: bool = True,
) -> Network:
    """Imports and optimises a model and finds its tasks.

    Args:
        model: shapes known.
        name: of the network.
        seed: of weights that the model does not carry.
        passes: names of passes to run; all by default.
        quantise: one of `quantise.MODES`, of which int8 may be the type of the layers that are chosen in mixed
            precision, or of `quantise.BITS`: weights alone; None: floats.
        how: of a network to quantise.
        substitutions: `search`, after the passes and before quantisation; None: passes alone.
        device: target of the layers that an accelerator can compute, which needs `shift8`; None: no accelerator.
        target: of all else; None: the CPU.
        precision: float32: as the model is, which may have 16-bit floats itself; bfloat16, float16 or mixed: what
            the model has in float32 is lowered to that, see `autotune.graph.precision`.
        choose: of a graph in float32, after the passes, and the model what is in which type; for mixed.
        report: whether it is measured what weights of a few bits cost.

    Raises:
        ModelError: an operator that is not supported, or shapes that are not known.
        GraphError: a network to quantise that has no layers with weights, or none that the device covers.
        ValueError: an unknown `quantise`, `substitutions` or `precision`, two of them that exclude each other, or what
            `how` says of layers or data that are not there.
    """
    if quantise not in (None, *MODES, *BITS):
        allowed = ", ".join((*MODES, *BITS))
        raise ValueError(f"`quantise` must be one of {allowed} or None, but got quantise={quantise!r}")
    if precision == MIXED and quantise in BITS:
        raise ValueError(f"`quantise` must be int8 or None beside {MIXED} precision, but got quantise={quantise!r}")
    if device is not None and quantise != "shift8":
        raise ValueError(f"`quantise` must be 'shift8' for layers on {device}, but got quantise={quantise!r}")
    if precision not in (*PRECISIONS, MIXED):
        allowed = ", ".join((*PRECISIONS, MIXED))
        raise ValueError(f"`precision` must be one of {allowed}, but got precision={precision!r}")
    if (choose is None) == (precision == MIXED):
        raise ValueError(f"`choose` must be given for {MIXED} precision alone, but got precision={precision!r}")
    if precision != FULL and quantise == "shift8":
        raise ValueError(f"`precision` must be {FULL} beside quantise='shift8', but got precision={precision!r}")
    if substitutions not in (None, "search"):
        raise ValueError(f"`substitutions` must be 'search' or None, but got substitutions={substitutions!r}")
    whole, on = with_weights(model, seed), target or registry.get(CPU)
    plain = (quantise, substitutions, device, choose) == (None,) * 4 and precision == FULL
    graph = optimise(with_loops(import_model(whole, seed, loops=True), on, plain), passes)
    accuracy, substituted = None, None
    narrow = narrow_floats(graph)
    check_precision(graph, precision, "a model")
    _check_narrow(narrow, None if quantise in BITS else quantise, substitutions)
    if quantise is not None and is_quantised(graph):
        has = "a model that is quantised already"
        raise ValueError(f"`quantise` must be None for {has}, but got quantise={quantise!r}")
    if substitutions is not None:
        substituted = searched(graph)
        graph = substituted.graph
    if quantise in BITS:
        found, accuracy = _of_few_bits(graph, seed, how or Quantisation(), quantise, report)
        graph = found.graph
    elif quantise is not None and precision != MIXED:
        found, accuracy = _quantised(graph, seed, how or Quantisation(), quantise)
        graph = found.graph
    imported = with_byte_layers(graph) if quantise is None and precision == FULL else None
    if imported is not None:
        graph = imported.graph
    if device is not None:
        graph = offload(graph, _block(device))
    graph = for_kernels(graph, on, windows=passes is None)
    mixture = None if choose is None else choose(graph, whole)
    if mixture is not None:
        layers = ByteLayers.of(graph, seed, how or Quantisation()) if mixture.int8 else None
        graph = in_types(graph, mixture.dtype, mixture.narrow, mixture.int8, layers)
    elif precision != FULL:
        graph = lower_precision(graph, precision)
    graph = executable_graph(graph, on.alignment)
    tasks = tuple(tasks_of(graph, device, on.alignment))
    precision = " and ".join(narrow) if narrow and precision == FULL else precision
    return Network(name, whole, graph, tasks, accuracy, substituted, device, precision, mixture, imported)


def _check_narrow(narrow: Sequence[str], quantise: str | None, substitutions: str | None) -> None:
    """Holds what else is asked for against the 16-bit floats that a model has.

    Raises:
        ValueError: they exclude each other.
    """
    has = f"a model with values in {' and '.join(narrow)}"
    if narrow and quantise is not None:
        raise ValueError(f"`quantise` must be None for {has}, but got quantise={quantise!r}")
    if narrow and substitutions is not None:
        raise ValueError(f"`substitutions` must be None for {has}, but got substitutions={substitutions!r}")


def _block(device: str) -> tuple[int, int, int]:
    block = block_of(registry.get(device).hardware)
    if block is None:
        raise ValueError(f"`device` must be a target with a matrix instruction on blocks, but got device={device!r}")
    return block


def searched(graph: Graph) -> Found:
    """What the search for substitutions makes of a graph that the passes left: the same every time."""
    return explore(graph, Analytic(given=frozenset(graph.inputs)), SUBSTITUTIONS, least=LEAST)


def _of_few_bits(
    graph: Graph, seed: int, how: Quantisation, mode: str, report: bool
) -> tuple[Quantised, Accuracy | None]:
    found = quantise_weights_only(graph, mode, how)
    if not report:
        return found, None
    feeds = (
        random_feeds(graph.inputs, seed + 1, TEST_INPUTS)
        if how.data is None
        else load_feeds(Path(how.data), graph.inputs)
    )
    return found, measure_accuracy(graph, found, feeds)


def _quantised(graph: Graph, seed: int, how: Quantisation, mode: str) -> tuple[Quantised, Accuracy]:
    feeds = None if how.data is None else load_feeds(Path(how.data), graph.inputs)
    return quantise_with_report(graph, seed, how, feeds, mode)
