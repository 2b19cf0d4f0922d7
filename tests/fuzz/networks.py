"""An ONNX model imported, optimised, compiled with no trial at all and run, against ONNX Runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from autotune.compiler.build import compile_network
from autotune.compiler.prepare import load_network
from autotune.compiler.schedules import Schedules
from autotune.graph.errors import UnsupportedModelError
from autotune.graph.frontends.onnx.model import with_shapes
from autotune.graph.ir import GraphError
from autotune.tuner.settings import Settings
from tests.autotune.fakes import settings_with
from tests.autotune.graph.onnx_models import Array, runtime
from tests.fuzz.verdicts import Refusal, Wrong

TOLERANCE = 1e-4
"""Tolerance as a share of the largest element, as in a run's own check."""

LARGEST = 1e4


def draw_feeds(model: onnx.ModelProto, seed: int) -> dict[str, Array]:
    """Random inputs: within the bounds that the model states of them, else uniform in [-2, 2], integers below 3."""
    rng = np.random.default_rng([seed, 2])
    known = {weight.name for weight in model.graph.initializer}
    feeds = {}
    for value in model.graph.input:
        if value.name in known:
            continue
        kind = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [d.dim_value for d in kind.shape.dim]
        floating = dtype.kind == "f"
        usual = (-2, 2) if floating else (0, 1 if dtype.kind == "b" else 2)
        low, high = map(float, value.doc_string.split()) if value.doc_string else usual
        drawn = rng.uniform(low, high, shape) if floating else rng.integers(int(low), int(high), shape, endpoint=True)
        feeds[value.name] = drawn.astype(dtype)
    return feeds


def check(model: onnx.ModelProto, seed: int) -> None:
    """Compiles and runs a model.

    Raises:
        Refused: the importer says that it does not support it, or ONNX Runtime cannot judge it.
        Wrong: other numbers than ONNX Runtime's.
    """
    feeds = draw_feeds(model, seed)
    wanted, room = _judge(model, feeds)
    try:
        network = load_network(with_shapes(model), "fuzz")
    except (UnsupportedModelError, GraphError) as error:
        raise Refusal(f"{type(error).__name__}: {error}") from None
    found = compiled_outputs(network, feeds, *_schedules())
    names = [value.name for value in model.graph.output]
    for name, ours, theirs, allowed in zip(names, found, wanted, room, strict=True):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            raise Wrong(
                f"{name} must be {theirs.dtype}{list(theirs.shape)} as ONNX Runtime has it, "
                f"but got {ours.dtype}{list(ours.shape)}"
            )
        if not theirs.size:
            continue
        gaps = np.abs(ours.astype(float) - theirs.astype(float))
        if not (gaps <= allowed).all():
            at = np.unravel_index(int(np.argmax(np.where(np.isnan(gaps), np.inf, gaps))), gaps.shape)
            raise Wrong(
                f"{name} must agree with ONNX Runtime within {allowed:.3g}, but got {ours[at]} for {theirs[at]} at "
                f"{tuple(map(int, at))}, {int((~(gaps <= allowed)).sum())} of {gaps.size} wrong"
            )


@cache
def _schedules() -> tuple[Schedules, Settings]:
    settings = settings_with(threads=2)
    return Schedules(None, settings), settings


def compiled_outputs(network: Any, feeds: dict[str, Array], schedules: Schedules, settings: Settings) -> list[Array]:
    """Compiles a network, runs it once, and returns its outputs in order."""
    with tempfile.TemporaryDirectory(prefix="autotune-fuzz-") as place:
        executable = compile_network(network, schedules, Path(place) / "network", settings)
        out = executable(*(feeds[p.name] for p in executable.inputs))
    return [np.asarray(array) for array in (out if isinstance(out, tuple) else (out,))]


def _judge(model: onnx.ModelProto, feeds: dict[str, Array]) -> tuple[list[Array], list[float]]:
    """ONNX Runtime's outputs, and how far others may lie from them: more where small changes of the inputs grow."""
    try:
        wanted = runtime(model, feeds)
        near = {n: a * np.float32(1 + 1e-6) if a.dtype.kind == "f" else a for n, a in feeds.items()}
        moved = runtime(model, near)
    except Exception as error:  # ONNX Runtime has classes of its own for all it cannot do
        raise Refusal(f"ONNX Runtime: {str(error)[:200]}") from None
    if any(not np.isfinite(a.astype(float)).all() or np.abs(a.astype(float)).max(initial=0) > LARGEST for a in wanted):
        raise Refusal("numbers that are infinite, or too large to compare")
    room = []
    for one, other in zip(wanted, moved, strict=True):
        exact = one.dtype.kind in "iub"
        grown = float(np.abs(one.astype(float) - other.astype(float)).max(initial=0.0))
        room.append(0.0 if exact else TOLERANCE * float(np.abs(one).max(initial=1e-3)) + 8 * grown)
    return wanted, room


def smaller(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Models with less in them: one output of an earlier node, or an input in place of what a node computes."""
    several = len(model.graph.output) > 1
    for number in range(len(model.graph.node) - (not several)):
        yield _cut(model, list(model.graph.node)[: number + 1], [model.graph.node[number].output[0]])
    shapes = {value.name: value for value in with_shapes(model).graph.value_info}
    for number, node in enumerate(model.graph.node[:-1]):
        if len(node.output) == 1 and node.output[0] in shapes:
            nodes = [n for i, n in enumerate(model.graph.node) if i != number]
            yield _cut(model, nodes, [v.name for v in model.graph.output], [shapes[node.output[0]]])


def _cut(
    model: onnx.ModelProto,
    nodes: list[onnx.NodeProto],
    outputs: list[str],
    more: Sequence[onnx.ValueInfoProto] = (),
) -> onnx.ModelProto:
    """The model of those nodes, without what no output needs."""
    given = {value.name for value in more}
    outputs = [name for name in outputs if name not in given] or [nodes[-1].output[0]]
    needed, kept = set(outputs), []
    for node in reversed(nodes):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(node.input)
    inputs = [v for v in (*model.graph.input, *more) if v.name in needed]
    weights = [w for w in model.graph.initializer if w.name in needed]
    made = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(kept[::-1], "graph", inputs, made, weights)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
