"""The check of a network's executable: its outputs, and where they differ values in between, beside a reference's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx

from autotune.graph.attention import with_attention
from autotune.graph.copies import executable_graph
from autotune.graph.evaluate import compute, evaluate
from autotune.graph.importer import import_model
from autotune.graph.importer.nbits import in_floats
from autotune.graph.ir import Array, Graph
from autotune.graph.loops import loops_of
from autotune.graph.passes import optimise
from autotune.graph.precision import FULL
from autotune.network.build import compile_network, make_feeds
from autotune.network.comparison import Check, against_float64, errors_of, in_order
from autotune.network.imported import errors_against_floats
from autotune.network.integers import data_in_bytes, error_of, rounded_integers
from autotune.network.load import Network
from autotune.network.lowered import check_lowered
from autotune.network.pipeline import Substitute
from autotune.network.probing import Probing, is_as_near, outputs_of
from autotune.network.reference import reference_outputs
from autotune.network.schedules import Schedules
from autotune.tuning.settings import Settings
from search_space.scratch import ScratchFolder
from targets.executable import Executable

TOLERANCE = 1e-4
"""Largest difference from the reference, relative to the largest element of the tensor."""


INTERMEDIATES = 3


def with_checkpoints(model: onnx.ModelProto, count: int = INTERMEDIATES) -> tuple[onnx.ModelProto, list[str]]:
    """The model with further outputs: what goes into a last softmax, and `count` values spread over the network."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    given = {value.name for value in out.graph.output}
    nodes = [node for node in out.graph.node if node.op_type not in ("Constant", "ConstantOfShape", "Shape")]
    wanted = [node.input[0] for node in nodes if node.op_type == "Softmax" and node.output[0] in given]
    floats = _float_values(out)
    steps = [node.output[0] for node in nodes if node.op_type in ("Relu", "Add", "Sum", "Conv", "MatMul", "Clip")]
    steps = [name for name in steps if name in floats and name not in given]
    wanted += [steps[len(steps) * (i + 1) // (count + 1)] for i in range(count) if steps]
    added = [name for name in dict.fromkeys(wanted) if name not in given and name in floats]
    out.graph.output.extend(floats[name] for name in added)
    return out, added


def _float_values(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    known = {value.name: value for value in model.graph.value_info}
    return {n: v for n, v in known.items() if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}


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

    Only where outputs differ by more than `tolerance`, or hardly depend on the inputs, is a second executable compiled,
    by the same schedules, whose further outputs are values in between: they tell which layer is wrong.

    The reference is ONNX Runtime, or where that is missing our evaluation of the imported graph in NumPy. Where it and
    the executable differ by more than `tolerance`, either may be wrong, and the model in float64 decides. A quantised
    network is compared with the evaluation of its own graph, as integers are exact there, and so is one with 16-bit
    floats (`check_lowered`). A model that another quantiser made is compared with its floats as well
    (`errors_against_floats`). A model with products of data in bytes is compared with ONNX Runtime's outputs with the
    data in floats as well.

    Args:
        network: that was compiled.
        schedules: of its kernels.
        settings: target and threads.
        seed: random seed of the inputs.
        tolerance: greatest error of an output, over its largest element.
        say: shows a sentence to the user.
        executable: to check; None: the network is compiled for it.
        layers: whether values in between are compared in any case.

    Raises:
        RuntimeFailure: ONNX Runtime fails for another reason than an operator that it lacks.
    """
    feeds = make_feeds(network, seed)
    with ScratchFolder("check") as place:
        if executable is None:
            executable = compile_network(network, schedules, Path(place) / "network", settings)
        outputs = outputs_of(executable, feeds)
        probing = Probing(network, schedules, settings, feeds, seed, tolerance, layers, Path(place))
        if network.precision != FULL:
            return check_lowered(outputs, probing)
        if network.accuracy is not None:
            return _check_quantised(outputs, probing)
        if network.imported is not None:
            check = _check_quantised(outputs, probing)
            plain = optimise(import_model(network.model, seed=seed))
            beside = errors_against_floats(plain, network.imported, feeds)
            worst = {name: max(error, check.errors.get(name, 0.0)) for name, error in beside.items()}
            return replace(check, errors={**check.errors, **worst})
        if any(node.op == "dynamic_matmul" for node in network.graph.nodes):
            check = _check_quantised(outputs, probing)
            return replace(check, errors={**check.errors, **_errors_in_floats(network, settings, seed)})
        return _check_floats(outputs, probing, say)


def _check_floats(outputs: Sequence[Array], probing: Probing, say: Callable[[str], None]) -> Check:
    """Compares outputs in float32 with another runtime's, or with the model in float64 where they differ."""
    network, seed = probing.network, probing.seed

    def compared(
        model: onnx.ModelProto, plain: Graph, arrays: Sequence[Array], say: Callable[[str], None] = lambda text: None
    ) -> tuple[Check, Mapping[str, Array]]:
        reference, wanted = reference_outputs(model, plain, probing.feeds, threads, probing.folder)
        found = dict(zip((value.name for value in model.graph.output), arrays, strict=True))
        check = Check(reference, errors_of(found, wanted))
        if check.max_error <= probing.tolerance:
            return check, wanted
        say(f"{reference} differs: the model in float64 decides")
        return against_float64(check, model, probing.feeds, found, wanted), wanted

    loops, threads = bool(loops_of(network.graph)), probing.settings.threads
    plain = import_model(network.model, seed=seed, loops=loops)
    check, wanted = compared(network.model, plain, outputs, say)

    def reference(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        return reference_outputs(network.model, plain, feeds, threads, probing.folder)[1]

    if not probing.needed(check.max_error, wanted, reference):
        return check
    model, _ = with_checkpoints(network.model)
    further = import_model(model, seed=seed, loops=loops)
    graph = optimise(further)
    if network.found is not None:
        graph = Substitute()(graph)
    graph = with_attention(graph, probing.settings.target.hardware)
    arrays = probing.outputs(replace(network, model=model, graph=executable_graph(graph)))
    between = {**compared(model, further, arrays)[0].errors}
    for name in check.errors:
        del between[name]
    return replace(check, layers=in_order(between, (name for node in model.graph.node for name in node.output)))


def _check_quantised(outputs: Sequence[Array], probing: Probing) -> Check:
    """Integers made of integers are exact, floats are within rounding, bytes that floats are rounded to one step off.

    Such a byte may fall to either side where the float lies near a tie, and all that is computed of it with it. So
    those bytes are outputs of the probed network, too, and the reference goes on from them as they are. So are the
    floats that a product rounds by itself.
    """
    graph, feeds = probing.network.graph, probing.feeds
    rounded, within = rounded_integers(graph), data_in_bytes(graph)
    ours, plain = dict(zip(graph.outputs, outputs, strict=True)), evaluate(graph, feeds)
    errors = {name: error_of(graph, name, array, plain, rounded) for name, array in ours.items()}
    check = Check("numpy", errors)
    wanted = {name: plain[name] for name in ours}
    if not probing.needed(check.max_error, wanted, lambda feeds: evaluate(graph, feeds)):
        return check
    stored = [n.name for n in graph.nodes if n.type.dtype in ("uint8", "int8") and n.name not in graph.outputs]
    added = [stored[len(stored) * (i + 1) // (INTERMEDIATES + 1)] for i in range(INTERMEDIATES) if stored]
    names = list(dict.fromkeys([*graph.outputs, *added, *rounded, *within]))
    found = probing.values(names)
    values = evaluate(graph, feeds, {name: found[name] for name in (*rounded, *within)})
    made = [node for node in graph.nodes if node.name in within]
    values |= {node.name: compute(node, values) for node in made}  # each of what others are in the executable
    layers = {name: error_of(graph, name, found[name], values, rounded) for name in names}
    for name, array in ours.items():
        if probing.is_wrong(errors[name]):
            errors[name] = error_of(graph, name, array, values, rounded)
        if probing.is_wrong(errors[name]) and is_as_near(array, found[name], plain[name]):
            errors[name] = layers[name]  # other values near a tie fell to the other side, no more
    between = {name: error for name, error in layers.items() if name not in ours}
    return replace(check, errors=errors, layers=in_order(between, (node.name for node in graph.nodes)))


def _errors_in_floats(network: Network, settings: Settings, seed: int) -> dict[str, float]:
    """How far the graph is from ONNX Runtime's outputs where neither rounds data to bytes."""
    model = in_floats(network.model)
    plain, feeds = import_model(model, seed=seed), make_feeds(network, seed)
    with ScratchFolder("check") as place:
        _, wanted = reference_outputs(model, plain, feeds, settings.threads, Path(place))
    graph = optimise(plain)
    values = evaluate(graph, feeds)
    found = {value.name: values[name] for value, name in zip(model.graph.output, graph.outputs, strict=True)}
    return {f"{name}, in floats": error for name, error in errors_of(found, wanted).items()}
