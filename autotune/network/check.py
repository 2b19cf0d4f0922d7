"""Checking a network's executable: its outputs and some values in between against a reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from autotune.graph.attention import with_attention
from autotune.graph.copies import executable_graph
from autotune.graph.evaluate import compute, evaluate
from autotune.graph.ir import Graph
from autotune.graph.loops import loops_of
from autotune.graph.passes import optimise
from autotune.graph.precision import FULL
from autotune.network.build import compile_network, make_feeds
from autotune.network.comparison import Check, against_float64, errors_of
from autotune.network.imported import errors_against_floats
from autotune.network.integers import data_in_bytes, error_of, rounded_integers
from autotune.network.load import Network
from autotune.network.lowered import check_lowered
from autotune.network.schedules import Schedules
from autotune.network.sources import INTERMEDIATES
from autotune.tuning.settings import Settings
from search_space.scratch import ScratchFolder

TOLERANCE = 1e-4
"""Largest difference from the reference, relative to the largest element of the tensor."""


def check_network(
    network: Network,
    schedules: Schedules,
    settings: Settings,
    seed: int = 0,
    tolerance: float = TOLERANCE,
    say: Callable[[str], None] = lambda text: None,
) -> Check:
    """Compares outputs, the input of the softmax and some values in between with the reference's.

    The reference is ONNX Runtime, or PyTorch for one of its modules. The values in between are made outputs of the
    graph, which is compiled anew with the same schedules. Where ONNX Runtime is missing the reference is our evaluation
    of the imported graph in NumPy. Where the two differ by more than `tolerance`, either may be wrong, and the model in
    float64 decides. A quantised network is compared with the evaluation of its own graph: integers are exact there, see
    `_check_quantised`. So is one with 16-bit floats, see `check_lowered`. One that another quantiser made is compared
    with the floats of its model as well, layer by layer, see `errors_against_floats`. One whose model has products of
    data in bytes is so, too, and read right if it is what ONNX Runtime makes of the model with the data in floats.
    """
    if network.precision != FULL:
        return check_lowered(network, schedules, settings, seed)
    if network.accuracy is not None:
        return _check_quantised(network, schedules, settings, seed)
    if network.imported is not None:
        check = _check_quantised(network, schedules, settings, seed)
        plain = optimise(network.source.graph())
        beside = errors_against_floats(plain, network.imported, make_feeds(network, seed))
        worst = {name: max(error, check.errors.get(name, 0.0)) for name, error in beside.items()}
        return replace(check, errors={**check.errors, **worst})
    if any(node.op == "dynamic_matmul" for node in network.graph.nodes):
        check = _check_quantised(network, schedules, settings, seed)
        return replace(check, errors={**check.errors, **_errors_in_floats(network, settings, seed)})
    source = network.source.with_checkpoints()
    graph = optimise(source.graph(loops=bool(loops_of(network.graph))))
    for step in network.substitutions:
        graph = step(graph)
    graph = with_attention(graph, settings.target.hardware)
    probed = replace(network, source=source, graph=executable_graph(graph), tasks=())
    feeds = make_feeds(network, seed)
    with ScratchFolder("check") as place:
        executable = compile_network(probed, schedules, Path(place) / "network", settings)
        out = executable(*(feeds[p.name] for p in executable.inputs))
        arrays = out if isinstance(out, tuple) else (out,)
        reference, wanted = source.outputs(feeds, settings.threads, Path(place))
    found = dict(zip(source.output_names, arrays, strict=True))
    check = Check(reference, errors_of(found, wanted))
    if check.max_error <= tolerance:
        return check
    say(f"{reference} differs: the model in float64 decides")
    return against_float64(check, source, feeds, found, wanted)


def _check_quantised(network: Network, schedules: Schedules, settings: Settings, seed: int) -> Check:
    """Integers made of integers are exact, floats are within rounding, bytes that floats are rounded to one step off.

    Such a byte may fall to either side where the float lies near a tie, and all that is computed of it with it. So
    those bytes are outputs of the probed network, too, and the reference goes on from them as they are. So are the
    floats that a product rounds by itself.
    """
    graph = network.graph
    rounded, within = rounded_integers(graph), data_in_bytes(graph)
    stored = [n.name for n in graph.nodes if n.type.dtype in ("uint8", "int8") and n.name not in graph.outputs]
    added = [stored[len(stored) * (i + 1) // (INTERMEDIATES + 1)] for i in range(INTERMEDIATES) if stored]
    names = list(dict.fromkeys([*graph.outputs, *added, *rounded, *within]))
    probed = executable_graph(Graph(graph.name, graph.inputs, graph.constants, graph.nodes, tuple(names)))
    feeds = make_feeds(network, seed)
    with ScratchFolder("check") as place:
        executable = compile_network(replace(network, graph=probed, tasks=()), schedules, Path(place), settings)
        out = executable(*(feeds[p.name] for p in executable.inputs))
        found = dict(zip(names, out if isinstance(out, tuple) else (out,), strict=True))
    values = evaluate(graph, feeds, {name: found[name] for name in (*rounded, *within)})
    made = [node for node in graph.nodes if node.name in within]
    values |= {node.name: compute(node, values) for node in made}  # each of what others are in the executable
    return Check("numpy", {name: error_of(graph, name, found[name], values, rounded) for name in names})


def _errors_in_floats(network: Network, settings: Settings, seed: int) -> dict[str, float]:
    """How far the graph is from ONNX Runtime's outputs where neither rounds data to bytes."""
    source, feeds = network.source.in_floats(), make_feeds(network, seed)
    with ScratchFolder("check") as place:
        _, wanted = source.outputs(feeds, settings.threads, Path(place))
    graph = optimise(source.graph())
    values = evaluate(graph, feeds)
    found = {output: values[name] for output, name in zip(source.output_names, graph.outputs, strict=True)}
    return {f"{name}, in floats": error for name, error in errors_of(found, wanted).items()}
