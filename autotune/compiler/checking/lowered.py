"""The check of a network in 16-bit floats: compares its outputs, and where they differ each kernel, with NumPy."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from autotune.compiler.checking.comparison import Check, Rounding, in_order, relative_error
from autotune.compiler.checking.integers import compute_error, rounded_integers
from autotune.compiler.checking.probing import Probing, is_as_near, with_outputs
from autotune.compiler.prepare import Network
from autotune.compiler.schedules import Schedules
from autotune.graph.evaluate import compute, evaluate
from autotune.graph.ir import Array, Graph
from autotune.graph.partition import partition
from autotune.tuner.settings import Settings
from search_space.dtypes import FLOATS, NARROW
from search_space.operators import winograd
from search_space.operators.estimates import STEP

MARGIN = 4
"""Factor by which the noise may exceed that of another runtime and of roundings together: the noise of few elements
depends on chance, and a fault in reading causes a larger error."""


def check_lowered(outputs: Sequence[Array], probing: Probing) -> Check:
    """Compares outputs with the same graph in NumPy, which rounds at the same places, and with the model in float32.

    An output is right if it differs from NumPy's by a step, or is as near to float32 as NumPy's is. If one is not, each
    stored value is compared with the one that NumPy makes of the values stored before it. All values of 16 bits are
    outputs of the probed network, and the reference continues from their values: so a number that fell to the other
    side of a tie moves nothing else, and each kernel is compared by itself. One step is allowed for it, and the known
    rounding of its kernel's algorithm (`winograd.RELATIVE_ERROR`); the difference beyond that is its error. The
    comparison with float32 shows the cost of rounding. Outputs of a model that has 16-bit floats itself may not be much
    further from float32 than another runtime is with it, or NumPy node by node.

    Args:
        outputs: outputs of the executable.
        probing: the network, and the way to compute its values in between.
    """
    network, feeds = probing.network, probing.feeds
    graph, where = network.graph, (probing.settings.threads, probing.folder)
    reference, exact = _in_float32(network, feeds, *where)
    itself = _as_it_is(network, feeds, *where)
    computed = dict(zip(graph.outputs, outputs, strict=True))
    names = dict(zip(exact, graph.outputs, strict=True))
    floats = [name for name in exact if exact[name].dtype.kind == "f"]
    rounding = {name: Rounding.between(computed[names[name]], exact[name]) for name in floats}
    plain = evaluate(graph, feeds)
    errors = _errors(network, computed, plain, {})

    def forgive(others: Mapping[str, Array]) -> None:
        """Takes away errors that outputs of another evaluation with the same rounding have, too."""
        for name in floats:
            ours = names[name]
            if probing.is_wrong(errors[ours]) and is_as_near(computed[ours], others[ours], exact[name]):
                errors[ours] = 0.0

    forgive(plain)
    layers: dict[str, float] = {}
    if probing.needs_values_between(max(errors.values()), exact, lambda feeds: _in_float32(network, feeds, *where)[1]):
        probed, values, allowed = _probe(probing)
        each = _errors(network, probed, values, allowed)
        layers = {name: error for name, error in each.items() if name not in computed}
        again = _errors(network, computed, values, allowed)
        errors = {name: again[name] if probing.is_wrong(error) else error for name, error in errors.items()}
        if not any(probing.is_wrong(each[name]) for name in computed):
            forgive(probed)
    note = f"rounding is beside {reference} in float32"
    if itself is not None and floats:
        theirs = {name: Rounding.between(itself[1][name], exact[name]) for name in floats}
        worst = min(theirs.values(), key=lambda cost: cost.decibels)
        note += f", from which {itself[0]} with the model as it is lies {worst.decibels:.1f} dB off"
        expected = _expected_noise(network)
        for name in floats:
            beyond = max(0.0, rounding[name].noise - MARGIN * (theirs[name].noise + expected))
            errors[names[name]] = max(errors[names[name]], beyond)
    return Check("numpy", errors, note, rounding, in_order(layers, (node.name for node in graph.nodes)))


def _in_float32(
    network: Network, feeds: Mapping[str, Array], threads: int, folder: Path
) -> tuple[str, dict[str, Array]]:
    """Computes the model in float32; returns the runtime's name, and the outputs."""
    wide = {name: array.astype(np.float32) if str(array.dtype) in NARROW else array for name, array in feeds.items()}
    return network.source.in_float32().outputs(wide, threads, folder)


def _as_it_is(
    network: Network, feeds: Mapping[str, Array], threads: int, folder: Path
) -> tuple[str, dict[str, Array]] | None:
    """Computes a model in its own 16-bit floats; returns the runtime's name and the outputs, or None without them."""
    if not network.source.narrow_types:
        return None
    # ONNX Runtime has hardly any operation in bfloat16.
    return network.source.outputs(feeds, threads, folder)


def _expected_noise(network: Network) -> float:
    """Sums the noise over signal of independent roundings of all stored values, each spread evenly over a step."""
    steps = [STEP[node.type.dtype] for node in network.graph.nodes if node.op == "cast" and node.type.dtype in NARROW]
    return math.hypot(*steps) / math.sqrt(12)


def stored_values(
    network: Network, schedules: Schedules, settings: Settings, feeds: Mapping[str, Array], folder: Path
) -> tuple[dict[str, Array], dict[str, float]]:
    """Computes outputs, values of 16 bits, and integers made of floats by an executable, and the error of each.

    Integers that are made of integers alone are not probed: all floats that are made of them are compared.
    """
    found, values, allowed = _probe(Probing(network, schedules, settings, feeds, 0, 0.0, True, folder))
    return found, _errors(network, found, values, allowed)


def _probe(probing: Probing) -> tuple[dict[str, Array], dict[str, Array], dict[str, float]]:
    """Computes stored values by an executable, each by NumPy from the values before, and its allowed rounding."""
    graph = probing.network.graph
    stored = [n.name for n in graph.nodes if n.type.dtype in NARROW and n.op == "cast" and n.name not in graph.outputs]
    bytes_made = rounded_integers(graph)
    names = list(dict.fromkeys([*graph.outputs, *stored, *bytes_made]))
    found = probing.values(names)
    values = evaluate(graph, probing.feeds, {name: found[name] for name in (*stored, *bytes_made)})
    rounds = rounding_of_kernels(with_outputs(graph, names), probing.schedules, probing.settings.target.alignment)
    return found, values, {name: _largest_rounding(graph, name, rounds, {*stored, *bytes_made}) for name in names}


def _errors(
    network: Network, actual: Mapping[str, Array], values: Mapping[str, Array], tolerances: Mapping[str, float]
) -> dict[str, float]:
    """Computes the error of each value beyond the allowed difference, over its largest element."""
    graph, bytes_made = network.graph, rounded_integers(network.graph)
    return {
        name: _error(graph, name, array, values, tolerances.get(name, 0.0))
        if graph.type(name).dtype in FLOATS
        else compute_error(graph, name, array, values, bytes_made)
        for name, array in actual.items()
    }


def rounding_of_kernels(graph: Graph, schedules: Schedules, alignment: int) -> dict[str, float]:
    """Returns node → share of the largest element that its kernel may be off by, for kernels that round internally.

    These are kernels whose algorithm rounds tiles, and attention with weights in 16 bits: each weight may fall to the
    other side of a tie, by half a step at most, and the weights of a row add up to 1.
    """
    shares: dict[str, float] = {}
    for group in partition(graph, alignment=alignment):
        for node in group.nodes:
            if node.op == "attention" and node.attrs.get("weights") in NARROW:
                shares |= {each.name: STEP[node.attrs["weights"]] / 2 for each in group.nodes}
        algorithm = None if group.workload is None else schedules(group.workload).algorithm
        if algorithm in winograd.DOT:
            shares |= {node.name: winograd.RELATIVE_ERROR[algorithm] for node in group.nodes}
    return shares


def _largest_rounding(graph: Graph, name: str, rounds: Mapping[str, float], stored_names: Collection[str]) -> float:
    """Returns the largest allowed rounding of the nodes between a value and the stored values before it."""
    worst, todo, seen = 0.0, [name], {name}
    while todo:
        node = graph.node(todo.pop())
        if node is not None:
            worst = max(worst, rounds.get(node.name, 0.0))
            more = {source for source in node.inputs if source not in stored_names} - seen
            seen |= more
            todo += more
    return worst


def _error(graph: Graph, name: str, actual: Array, values: Mapping[str, Array], tolerance: float) -> float:
    """Computes the error of a value beyond the allowed difference, over its largest element."""
    node = graph.node(name)
    if node is None or node.type.dtype not in NARROW:
        return _beyond(actual, values[name], 0.0, tolerance)
    return error_beyond_a_step(actual, compute(node, values), node.type.dtype, tolerance)


def error_beyond_a_step(actual: Array, expected: Array, dtype: str, tolerance: float = 0.0) -> float:
    """Computes the largest difference above a step of `dtype` at that number, over the largest finite element.

    Args:
        actual, expected: arrays of one shape.
        dtype: type that both are rounded to.
        tolerance: share of the largest finite element that is no error either.
    """
    return _beyond(actual, expected, STEP[dtype], tolerance)


def _beyond(actual: Array, expected: Array, step: float, tolerance: float) -> float:
    """Computes the largest difference beyond `step` and the share `tolerance`, over the largest finite element."""
    ours, theirs = actual.astype(np.float64), expected.astype(np.float64)
    largest = float(np.max(np.abs(theirs), initial=0.0, where=np.isfinite(theirs)))
    margin = step * np.maximum(np.abs(ours), np.abs(theirs), where=np.isfinite(ours), out=np.abs(theirs))
    with np.errstate(invalid="ignore"):  # differences of infinities, which `relative_error` compares
        near = np.abs(ours - theirs) <= margin + tolerance * largest
    return relative_error(np.where(near, theirs, ours), theirs)
