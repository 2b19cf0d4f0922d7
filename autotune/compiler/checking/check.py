"""The check of a network's executable: compares its outputs, or also values in between, with a reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from autotune.compiler.build import compile_network, make_feeds
from autotune.compiler.checking.comparison import Check, against_float64, compute_errors, in_order
from autotune.compiler.checking.imported import errors_against_floats
from autotune.compiler.checking.integers import compute_error, data_in_bytes, rounded_integers
from autotune.compiler.checking.lowered import check_lowered
from autotune.compiler.checking.probing import Probing, compute_outputs, is_as_near
from autotune.compiler.prepare import Network
from autotune.compiler.schedules import Schedules
from autotune.compiler.sources import INTERMEDIATES, ModelSource
from autotune.graph.attention import with_attention
from autotune.graph.copies import executable_graph
from autotune.graph.evaluate import compute, evaluate
from autotune.graph.ir import Array
from autotune.graph.loops import list_loops
from autotune.graph.passes import optimise
from autotune.graph.precision import FULL
from autotune.tuner.settings import Settings
from search_space.scratch import ScratchFolder
from targets.executable import Executable

TOLERANCE = 1e-4
"""Largest difference from the reference, relative to the largest element of the tensor."""


def check_network(
    network: Network,
    schedules: Schedules,
    settings: Settings,
    seed: int = 0,
    tolerance: float = TOLERANCE,
    say: Callable[[str], None] = lambda text: None,
    executable: Executable | None = None,
    layers: bool = False,
) -> Check:
    """Compares the outputs of one inference of an executable with a reference's.

    A second executable is compiled only if outputs differ by more than `tolerance`, or hardly depend on the inputs. It
    has the same schedules, and values in between as further outputs, which tell the layer that is wrong.

    The reference is ONNX Runtime, PyTorch for one of its modules, or our evaluation of the imported graph in NumPy.
    Where it and the executable differ by more than `tolerance`, either may be wrong, and the model in float64 decides.
    A quantised network is compared with the evaluation of its own graph, as integers are exact there, and so is one
    with 16-bit floats (`check_lowered`). A model that another quantiser made is compared with its floats as well
    (`errors_against_floats`). A model with products of data in bytes is compared with ONNX Runtime's outputs with the
    data in floats as well.

    Args:
        network: network that was compiled.
        schedules: schedules of its kernels.
        settings: target and threads.
        seed: random seed of the inputs.
        tolerance: greatest error of an output, over its largest element.
        say: shows a sentence to the user.
        executable: executable to check; None: the network is compiled for it.
        layers: whether to compare values in between in any case.

    Raises:
        RuntimeFailure: ONNX Runtime fails for another reason than an operator that it lacks.
    """
    feeds = make_feeds(network, seed)
    with ScratchFolder("check") as scratch:
        if executable is None:
            executable = compile_network(network, schedules, Path(scratch) / "network", settings)
        outputs = compute_outputs(executable, feeds)
        probing = Probing(network, schedules, settings, feeds, seed, tolerance, layers, Path(scratch))
        if network.precision != FULL:
            return check_lowered(outputs, probing)
        if network.accuracy is not None:
            return _check_quantised(outputs, probing)
        if network.imported_layers is not None:
            check = _check_quantised(outputs, probing)
            plain = optimise(network.source.graph())
            beside = errors_against_floats(plain, network.imported_layers, feeds)
            worst = {name: max(error, check.errors.get(name, 0.0)) for name, error in beside.items()}
            return replace(check, errors={**check.errors, **worst})
        if any(node.op == "dynamic_matmul" for node in network.graph.nodes):
            check = _check_quantised(outputs, probing)
            return replace(check, errors={**check.errors, **_errors_in_floats(network, settings, seed)})
        return _check_floats(outputs, probing, say)


def _check_floats(outputs: Sequence[Array], probing: Probing, say: Callable[[str], None]) -> Check:
    """Compares outputs in float32 with another runtime's, or with the model in float64 where they differ."""
    network = probing.network

    def compare(
        source: ModelSource, arrays: Sequence[Array], say: Callable[[str], None] = lambda text: None
    ) -> tuple[Check, Mapping[str, Array]]:
        reference, wanted = source.outputs(probing.feeds, threads, probing.folder)
        ours = dict(zip(source.output_names, arrays, strict=True))
        check = Check(reference, compute_errors(ours, wanted))
        if check.max_error <= probing.tolerance:
            return check, wanted
        say(f"{reference} differs: the model in float64 decides")
        return against_float64(check, source, probing.feeds, ours, wanted), wanted

    loops, threads = bool(list_loops(network.graph)), probing.settings.threads
    check, wanted = compare(network.source, outputs, say)

    def reference(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        return network.source.outputs(feeds, threads, probing.folder)[1]

    if not probing.needs_values_between(check.max_error, wanted, reference):
        return check
    source = network.source.with_checkpoints()
    graph = optimise(source.graph(loops=loops))
    for step in network.substitutions:
        graph = step(graph)
    graph = with_attention(graph, probing.settings.target.hardware)
    arrays = probing.outputs(replace(network, source=source, graph=executable_graph(graph)))
    between = {**compare(source, arrays)[0].errors}
    for name in check.errors:
        del between[name]
    return replace(check, layers=in_order(between, source.output_names))


def _check_quantised(outputs: Sequence[Array], probing: Probing) -> Check:
    """Compares integers made of integers exactly, floats within rounding, and bytes rounded from floats within one
    step.

    Such a byte may fall to either side where the float lies near a tie, and everything computed from it with it. So
    these bytes are outputs of the probed network, too, and the reference continues from their values. The same holds
    for floats that a product rounds itself.
    """
    graph, feeds = probing.network.graph, probing.feeds
    rounded, within = rounded_integers(graph), data_in_bytes(graph)
    ours, plain = dict(zip(graph.outputs, outputs, strict=True)), evaluate(graph, feeds)
    errors = {name: compute_error(graph, name, array, plain, rounded) for name, array in ours.items()}
    check = Check("numpy", errors)
    wanted = {name: plain[name] for name in ours}
    if not probing.needs_values_between(check.max_error, wanted, lambda feeds: evaluate(graph, feeds)):
        return check
    stored = [n.name for n in graph.nodes if n.type.dtype in ("uint8", "int8") and n.name not in graph.outputs]
    added = [stored[len(stored) * (i + 1) // (INTERMEDIATES + 1)] for i in range(INTERMEDIATES) if stored]
    names = list(dict.fromkeys([*graph.outputs, *added, *rounded, *within]))
    probed = probing.values(names)
    values = evaluate(graph, feeds, {name: probed[name] for name in (*rounded, *within)})
    made = [node for node in graph.nodes if node.name in within]
    values |= {node.name: compute(node, values) for node in made}  # each from the executable's values of its inputs
    layers = {name: compute_error(graph, name, probed[name], values, rounded) for name in names}
    for name, array in ours.items():
        if probing.is_wrong(errors[name]):
            errors[name] = compute_error(graph, name, array, values, rounded)
        if probing.is_wrong(errors[name]) and is_as_near(array, probed[name], plain[name]):
            errors[name] = layers[name]  # only other values near a tie fell to the other side
    between = {name: error for name, error in layers.items() if name not in ours}
    return replace(check, errors=errors, layers=in_order(between, (node.name for node in graph.nodes)))


def _errors_in_floats(network: Network, settings: Settings, seed: int) -> dict[str, float]:
    """Measures the error of the graph beside ONNX Runtime's outputs where neither rounds data to bytes."""
    source, feeds = network.source.in_floats(), make_feeds(network, seed)
    with ScratchFolder("check") as place:
        _, wanted = source.outputs(feeds, settings.threads, Path(place))
    graph = optimise(source.graph())
    values = evaluate(graph, feeds)
    found = {output: values[name] for output, name in zip(source.output_names, graph.outputs, strict=True)}
    return {f"{name}, in floats": error for name, error in compute_errors(found, wanted).items()}
