"""Checking a network in 16-bit floats: kernel by kernel against the graph in NumPy, and its outputs against float32."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from autotune.graph.copies import executable_graph
from autotune.graph.evaluate import compute, evaluate
from autotune.graph.ir import Array, Graph
from autotune.graph.partition import partition
from autotune.network.build import compile_network, make_feeds
from autotune.network.comparison import Check, Rounding, relative_error
from autotune.network.integers import error_of, rounded_integers
from autotune.network.load import Network
from autotune.network.schedules import Schedules
from autotune.tuning.settings import Settings
from search_space.dtypes import FLOATS, NARROW
from search_space.operators import winograd
from search_space.operators.estimates import STEP
from search_space.scratch import ScratchFolder

MARGIN = 4
"""How many times the noise of another runtime and of roundings together ours may be: of few elements it is a matter of
chance, and what was read wrong is wrong by more."""


def check_lowered(network: Network, schedules: Schedules, settings: Settings, seed: int) -> Check:
    """Holds every stored value against the one that NumPy makes of the values stored before it.

    All values of 16 bits are outputs of the probed network, and the reference goes on from them as they are: so a
    number that fell to the other side of a tie moves nothing else, and each kernel is compared by itself. One step is
    allowed for it, and what the algorithm of its kernel is known to round (`winograd.RELATIVE_ERROR`); what a value
    differs by beyond that is its error. The outputs are compared with the float32 model's, too, which says what
    rounding costs. Those of a model that has 16-bit floats itself may not be much further from float32 than another
    runtime is with it, or NumPy node by node.
    """
    feeds = make_feeds(network, seed)
    with ScratchFolder("check") as place:
        found, errors = stored_values(network, schedules, settings, feeds, Path(place))
        reference, exact = _in_float32(network, feeds, settings.threads, Path(place))
        itself = _as_it_is(network, feeds, settings.threads, Path(place))
    names = dict(zip(exact, network.graph.outputs, strict=True))
    floats = [name for name in exact if exact[name].dtype.kind == "f"]
    rounding = {name: Rounding.between(found[names[name]], exact[name]) for name in floats}
    note = f"rounding is beside {reference} in float32"
    if itself is not None and floats:
        theirs = {name: Rounding.between(itself[1][name], exact[name]) for name in floats}
        worst = min(theirs.values(), key=lambda cost: cost.decibels)
        note += f", from which {itself[0]} with the model as it is lies {worst.decibels:.1f} dB off"
        expected = _expected_noise(network)
        for name in floats:
            beyond = max(0.0, rounding[name].noise - MARGIN * (theirs[name].noise + expected))
            errors[names[name]] = max(errors[names[name]], beyond)
    return Check("numpy", errors, note, rounding)


def _in_float32(
    network: Network, feeds: Mapping[str, Array], threads: int, folder: Path
) -> tuple[str, dict[str, Array]]:
    """Who computed the model in float32, and its outputs."""
    wide = {name: array.astype(np.float32) if str(array.dtype) in NARROW else array for name, array in feeds.items()}
    return network.source.in_float32().outputs(wide, threads, folder)


def _as_it_is(
    network: Network, feeds: Mapping[str, Array], threads: int, folder: Path
) -> tuple[str, dict[str, Array]] | None:
    """Who computed a model that has 16-bit floats in its own types, and its outputs; None of one that has none."""
    if not network.source.narrow_types:
        return None
    # Of bfloat16 ONNX Runtime has hardly an operation.
    return network.source.outputs(feeds, threads, folder)


def _expected_noise(network: Network) -> float:
    """Noise over signal that independent roundings of all stored values add up to, each spread evenly over a step."""
    steps = [STEP[node.type.dtype] for node in network.graph.nodes if node.op == "cast" and node.type.dtype in NARROW]
    return math.hypot(*steps) / math.sqrt(12)


def stored_values(
    network: Network, schedules: Schedules, settings: Settings, feeds: Mapping[str, Array], folder: Path
) -> tuple[dict[str, Array], dict[str, float]]:
    """Outputs, values of 16 bits, and integers made of floats as an executable computes them, and the error of each.

    Integers that are made of integers alone are outputs of no probe: all floats that are made of them are compared.
    """
    graph = network.graph
    stored = [n.name for n in graph.nodes if n.type.dtype in NARROW and n.op == "cast" and n.name not in graph.outputs]
    bytes_made = rounded_integers(graph)
    names = list(dict.fromkeys([*graph.outputs, *stored, *bytes_made]))
    probed = executable_graph(Graph(graph.name, graph.inputs, graph.constants, graph.nodes, tuple(names)))
    executable = compile_network(replace(network, graph=probed, tasks=()), schedules, folder / "network", settings)
    out = executable(*(feeds[p.name] for p in executable.inputs))
    found = dict(zip(names, out if isinstance(out, tuple) else (out,), strict=True))
    values = evaluate(graph, feeds, {name: found[name] for name in (*stored, *bytes_made)})
    rounds = rounding_of_kernels(probed, schedules, settings.target.alignment)
    allowed = {name: _gathered(graph, name, rounds, {*stored, *bytes_made}) for name in names}

    def error(name: str) -> float:
        if graph.type(name).dtype not in FLOATS:
            return error_of(graph, name, found[name], values, bytes_made)
        return _error(graph, name, found[name], values, allowed[name])

    return found, {name: error(name) for name in names}


def rounding_of_kernels(graph: Graph, schedules: Schedules, alignment: int) -> dict[str, float]:
    """Node → share of the largest element that its kernel may be off by; those alone that round within.

    Those are kernels whose algorithm rounds tiles, and attention with weights in 16 bits: each weight may fall to the
    other side of a tie, by half a step at most, and the weights of a row add up to 1.
    """
    found: dict[str, float] = {}
    for group in partition(graph, alignment=alignment):
        for node in group.nodes:
            if node.op == "attention" and node.attrs.get("weights") in NARROW:
                found |= {each.name: STEP[node.attrs["weights"]] / 2 for each in group.nodes}
        algorithm = None if group.workload is None else schedules(group.workload).algorithm
        if algorithm in winograd.DOT:
            found |= {node.name: winograd.RELATIVE_ERROR[algorithm] for node in group.nodes}
    return found


def _gathered(graph: Graph, name: str, rounds: Mapping[str, float], stored: Collection[str]) -> float:
    """What the nodes round that a value is computed by, from the values that are stored."""
    worst, todo, seen = 0.0, [name], {name}
    while todo:
        node = graph.node(todo.pop())
        if node is not None:
            worst = max(worst, rounds.get(node.name, 0.0))
            more = {given for given in node.inputs if given not in stored} - seen
            seen |= more
            todo += more
    return worst


def _error(graph: Graph, name: str, found: Array, values: Mapping[str, Array], allowed: float) -> float:
    """How wrong a value is, beyond what a right one may differ by, over its largest element."""
    node = graph.node(name)
    if node is None or node.type.dtype not in NARROW:
        return _beyond(found, values[name], 0.0, allowed)
    return error_beyond_a_step(found, compute(node, values), node.type.dtype, allowed)


def error_beyond_a_step(found: Array, wanted: Array, dtype: str, allowed: float = 0.0) -> float:
    """Largest difference that is more than a step of `dtype` at that number, over the largest finite element.

    Args:
        found, wanted: of one shape.
        dtype: that both are rounded to.
        allowed: so much more, as a share of the largest finite element, is no error either.
    """
    return _beyond(found, wanted, STEP[dtype], allowed)


def _beyond(found: Array, wanted: Array, step: float, allowed: float) -> float:
    """Largest difference beyond `step` of the number and `allowed` of the largest finite one, over the latter."""
    ours, theirs = found.astype(np.float64), wanted.astype(np.float64)
    largest = float(np.max(np.abs(theirs), initial=0.0, where=np.isfinite(theirs)))
    margin = step * np.maximum(np.abs(ours), np.abs(theirs), where=np.isfinite(ours), out=np.abs(theirs))
    with np.errstate(invalid="ignore"):  # infinities, which `relative_error` compares
        near = np.abs(ours - theirs) <= margin + allowed * largest
    return relative_error(np.where(near, theirs, ours), theirs)
