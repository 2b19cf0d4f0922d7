"""Networks: from a model to tasks, and from their records to an executable that is checked and timed."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from autotune.compile import Compiler
from autotune.executable import Loaded, load
from autotune.graph.attention import with_attention
from autotune.graph.copies import executable_graph
from autotune.graph.evaluate import compute, evaluate
from autotune.graph.importer import import_model, with_weights
from autotune.graph.ir import Array, Graph
from autotune.graph.network_process import NetworkProcess, RuntimeFailure
from autotune.graph.offload import block_of, is_offloaded, offload, tuned_as
from autotune.graph.ops import find
from autotune.graph.partition import Group, partition
from autotune.graph.passes import optimise
from autotune.graph.passes.split_windows import split_windows
from autotune.graph.quantise import (
    CALIBRATION_INPUTS,
    MODES,
    Accuracy,
    Options,
    Quantised,
    load_feeds,
    quantise_with_report,
    with_dot_products,
)
from autotune.graph.substitutions import Analytic, Found, explore
from autotune.judge import Check, errors_of, judged, relative_error
from autotune.schedules import Schedules
from autotune.stepwise import compile_stepwise
from autotune.task import CPU, Task
from autotune.tuning import Settings
from search_space.ir.interp import numpy_dtype
from targets import registry

TOLERANCE = 1e-4
"""Largest difference from the reference, relative to the largest element of the tensor."""

INTERMEDIATES = 3

SUBSTITUTIONS = 2000
"""Graphs that a search for substitutions may make."""

LEAST = 0.01
"""Part of a network's modelled seconds that substitutions must save; the model cannot tell smaller gains from none."""

EXACT = ("clip", "concat", "copy", "dequantise", "max_pool2d", "pad", "relu", "reshape", "slice", "transpose")
"""Operations that round no float: every order of computing them gives the same."""


@dataclass(frozen=True)
class Quantisation:
    """How a network is quantised.

    Attributes:
        options: of the rewriting.
        inputs: how many random sets of inputs it is calibrated on; others are drawn for the report.
        data: an .npz file of sets to calibrate on in their place, the last two for the report, see `load_feeds`.
    """

    options: Options = field(default_factory=Options)
    inputs: int = CALIBRATION_INPUTS
    data: Path | None = None


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
    if passes is None and registry.get(target).hardware.gpu is None:
        graph = split_windows(graph)
    graph = with_attention(graph, registry.get(target).hardware)
    graph = executable_graph(graph, registry.get(target).alignment)
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
    feeds = None if how.data is None else load_feeds(how.data, graph.inputs)
    return quantise_with_report(graph, seed, how.options, how.inputs, feeds, mode)


def tasks_of(graph: Graph, device: str | None = None, target: str = CPU) -> list[Task]:
    """Tasks of a graph: each distinct workload, named after its shape, weighted by how often it occurs.

    Layers of a device that differ in their shift and limits alone are one task, see `tuned_as`.

    Args:
        graph: of the executable.
        device: target of the layers that an accelerator computes.
        target: of all else.
    """
    alignment = registry.get(target).alignment
    found: dict[str, Task] = {}
    names: dict[str, int] = {}
    for group in partition(graph, device is None, alignment):
        if group.workload is None:
            continue
        workload = tuned_as(group.workload)
        key = workload.key
        if key in found:
            found[key] = replace(found[key], weight=found[key].weight + 1)
            continue
        name = task_name(graph, group)
        names[name] = names.get(name, 0) + 1
        name = name if names[name] == 1 else f"{name}_{names[name]}"
        found[key] = Task(name, workload, target=device if is_offloaded(workload) else None)
    return list(found.values())


def task_name(graph: Graph, group: Group) -> str:
    """Operation, window, input and output extents, then what is fused: `conv2d3x3_56x56x64_64_add_relu`."""
    first = group.nodes[0]
    window = first.attrs.get("kernel") or (1,)
    weight = graph.type(first.inputs[1]).shape if len(first.inputs) > 1 else ()
    parts = [first.op]
    blocked = find(first.op).offloaded
    if blocked and "conv" in first.op:
        window = weight[2:-2]
    elif "conv" in first.op:
        window = weight[: len(weight) - (1 if first.op.startswith("depthwise") else 2)]
    if math.prod(_tuple(window)) > 1 or "conv" in first.op:
        parts[0] += "x".join(map(str, _tuple(window)))
    shape = graph.type(group.inputs[0]).shape if group.inputs else first.type.shape
    parts.append("x".join(map(str, shape[1:] if len(shape) in (4, 6) and shape[0] == 1 else shape)))
    if blocked:
        parts.append(str(first.type.shape[1] * first.type.shape[-1]))
    elif "conv" in first.op or "matmul" in first.op:
        parts.append(str(first.type.shape[-1]))
    stride = _tuple(first.attrs.get("stride", 1))
    if "conv" in first.op and max(stride) > 1:
        parts.append("s" + "x".join(map(str, stride if len(set(stride)) > 1 else stride[:1])))
    return "_".join([*parts, *(node.op for node in group.nodes[1:])])


def _tuple(value: Any) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (int(value),)


def write_network(network: Network, schedules: Schedules, folder: Path, settings: Settings) -> None:
    """Writes the network's executable to `folder`; one of steps on several targets where an accelerator takes part."""
    if network.device is not None:
        compile_stepwise(network.graph, schedules, folder, settings.target, network.device, settings.threads)
    else:
        compiler = Compiler(network.graph, schedules, settings.target, settings.threads)
        schedules.prepare(compiler.workloads)
        compiler.write(folder)


def compile_network(network: Network, schedules: Schedules, folder: Path, settings: Settings) -> Loaded:
    """The network's executable, in `folder`."""
    write_network(network, schedules, folder, settings)
    return load(folder, settings.threads)


def make_feeds(network: Network, seed: int) -> dict[str, Array]:
    """Random inputs: standard normal; integers below 100, as token ids are; truth values."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for name, kind in network.graph.inputs.items():
        dtype = numpy_dtype(kind.dtype)
        if dtype.kind == "f":
            feeds[name] = rng.standard_normal(kind.shape).astype(dtype)
        else:
            feeds[name] = rng.integers(0, 2 if dtype.kind == "b" else 100, kind.shape).astype(dtype)
    return feeds


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
) -> Check:
    """Compares outputs, the input of the softmax and some values in between with ONNX Runtime's.

    The values in between are made outputs of the graph, which is compiled anew with the same schedules. Where ONNX
    Runtime is missing the reference is our evaluation of the imported graph in NumPy. Where the two differ by more than
    `tolerance`, either may be wrong, and the model in float64 decides. A quantised network is compared with the
    evaluation of its own graph: integers are exact there, see `_check_quantised`.
    """
    if network.accuracy is not None:
        return _check_quantised(network, schedules, settings, seed)
    model, _ = with_checkpoints(network.model)
    plain = import_model(model, seed=seed)
    graph = optimise(plain)
    if network.found is not None:
        graph = searched(graph).graph
    graph = with_attention(graph, registry.get(network.target).hardware)
    probed = replace(network, model=model, graph=executable_graph(graph), tasks=())
    feeds = make_feeds(network, seed)
    with tempfile.TemporaryDirectory(prefix="autotune-check-") as place:
        executable = compile_network(probed, schedules, Path(place) / "network", settings)
        out = executable(*(feeds[p.name] for p in executable.inputs))
        arrays = out if isinstance(out, tuple) else (out,)
        reference, wanted = _reference_outputs(model, plain, feeds, settings.threads, Path(place))
    found = dict(zip((value.name for value in model.graph.output), arrays, strict=True))
    check = Check(reference, errors_of(found, wanted))
    if check.max_error <= tolerance:
        return check
    say(f"{reference} differs: the model in float64 decides")
    return judged(check, model, feeds, found, wanted)


def _check_quantised(network: Network, schedules: Schedules, settings: Settings, seed: int) -> Check:
    """Integers made of integers are exact, floats are within rounding, bytes that floats are rounded to one step off.

    Such a byte may fall to either side where the float lies near a tie, and all that is computed of it with it. So
    those bytes are outputs of the probed network, too, and the reference goes on from them as they are.
    """
    graph = network.graph
    rounded = rounded_values(graph)
    stored = [n.name for n in graph.nodes if n.type.dtype in ("uint8", "int8") and n.name not in graph.outputs]
    added = [stored[len(stored) * (i + 1) // (INTERMEDIATES + 1)] for i in range(INTERMEDIATES) if stored]
    names = list(dict.fromkeys([*graph.outputs, *added, *rounded]))
    probed = executable_graph(Graph(graph.name, graph.inputs, graph.constants, graph.nodes, tuple(names)))
    feeds = make_feeds(network, seed)
    with tempfile.TemporaryDirectory(prefix="autotune-check-") as place:
        executable = compile_network(replace(network, graph=probed, tasks=()), schedules, Path(place), settings)
        out = executable(*(feeds[p.name] for p in executable.inputs))
        found = dict(zip(names, out if isinstance(out, tuple) else (out,), strict=True))
    values = evaluate(graph, feeds, {name: found[name] for name in rounded})
    return Check("numpy", {name: error_of(graph, name, found[name], values, rounded) for name in names})


def rounded_values(graph: Graph) -> list[str]:
    """Integers of a graph that are made of floats which are computed, and not merely moved or compared."""
    computed: set[str] = set()
    for node in graph.nodes:
        if node.type.dtype.startswith("float") and (node.op not in EXACT or computed.intersection(node.inputs)):
            computed.add(node.name)
    return [n.name for n in graph.nodes if not n.type.dtype.startswith("float") and computed.intersection(n.inputs)]


def error_of(graph: Graph, name: str, found: Array, values: Mapping[str, Array], rounded: Collection[str]) -> float:
    """How wrong a value of a quantised network is.

    Args:
        graph: quantised.
        name: of the value.
        found: what the executable gives.
        values: of the reference, those of `rounded` as the executable gives them.
        rounded: names of the integers that are made of computed floats.

    Returns:
        The relative error of a float. Of an integer 0 where it is exact, else 1, whatever its size; of a byte that a
        float is rounded to 0 up to one step, else its relative error.
    """
    node = graph.node(name)
    if name in rounded and node is not None:
        wanted = compute(node, values)
        steps = int(np.max(np.abs(found.astype(np.int64) - wanted.astype(np.int64)), initial=0))
        return 0.0 if node.op == "quantise" and steps <= 1 else relative_error(found, wanted)
    if found.dtype.kind == "f":
        return relative_error(found, values[name])
    return 0.0 if np.array_equal(found, values[name]) else 1.0


def _reference_outputs(
    model: onnx.ModelProto, graph: Graph, feeds: Mapping[str, Array], threads: int, folder: Path
) -> tuple[str, dict[str, Array]]:
    file = folder / "model.onnx"
    onnx.save(model, file)
    try:
        with NetworkProcess("onnxruntime", threads, model=str(file)) as process:
            return "onnxruntime", process.infer(feeds, folder)
    except RuntimeFailure as error:
        if "No module named" not in str(error):
            raise
    values = evaluate(graph, feeds)
    names = [value.name for value in model.graph.output]
    return "numpy", {name: values[place] for name, place in zip(names, graph.outputs, strict=True)}
