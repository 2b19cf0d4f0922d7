"""Random graphs on special values: NaN, infinities, zeros of both signs, denormals, and rows and channels of any scale.

The oracle is ONNX's definition node by node in float64. How far a result in float32 may lie from it is found by Monte
Carlo arithmetic (Parker, 1997): the model is evaluated again with every value changed by a random share of a rounding,
and each element may differ by a multiple of what it moves. So a large row gives a small one no room.

An element counts only where evaluation in float32 has it of the same kind as evaluation in float64: finite, NaN, or an
infinity of one sign. Where they differ, as behind an overflow, the order of operations decides.

Winograd's algorithms are left out: they are bounded by the tile, not by the element, see tests of their own.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
from onnx import numpy_helper

from autotune.compiler.prepare import load_network
from autotune.compiler.schedules import Schedules
from autotune.compiler.selection import Limits
from autotune.graph.errors import UnsupportedModelError
from autotune.graph.frontends.onnx.float64 import evaluate_in_float64, evaluate_nodes
from autotune.graph.frontends.onnx.model import with_shapes
from autotune.graph.frontends.onnx.nodes import NodeError, run_node
from autotune.graph.ir import GraphError
from autotune.tuner.settings import Settings
from tests.autotune.fakes import settings_with
from tests.autotune.graph.onnx_models import Array
from tests.fuzz.graphs import random_model
from tests.fuzz.networks import compiled_outputs, draw_feeds
from tests.fuzz.verdicts import Refusal, Wrong

SPECIAL = np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 1e30, -1e30, 1e-30])
DRAWS, ROOM = 6, 64
"""Evaluations with random roundings, and how many times as far as the furthest of them an element may lie."""

ROUNDING = 2.0**-24
STEPS = frozenset({"Floor", "Ceil", "Round", "Sign", "ArgMax", "ArgMin", "Cast", "Greater", "Less", "Hardmax", "TopK"})
STEPS |= {"GreaterOrEqual", "LessOrEqual", "Equal", "ThresholdedRelu", "Mod"}
"""Operators whose results jump: behind a computed number either side is right."""


def draw(rng: np.random.Generator) -> onnx.ModelProto:
    """A random model, with scales of its weights' rows and channels spread in half of the cases."""
    model = random_model(rng)
    if rng.random() < 0.5:
        for weight in model.graph.initializer:
            array = numpy_helper.to_array(weight)
            if array.dtype == np.float32 and array.ndim > 1:
                weight.CopyFrom(numpy_helper.from_array(_scale(rng, array), weight.name))
    return model


def feeds(model: onnx.ModelProto, seed: int) -> dict[str, Array]:
    """Inputs of which some elements, rows or channels are special or badly scaled."""
    rng = np.random.default_rng([seed, 3])
    values = draw_feeds(model, seed)
    for name, array in values.items():
        if array.dtype != np.float32:
            continue
        kind = rng.choice(("scaled", "few", "many", "numbers"))
        if kind == "scaled":
            array = _scale(rng, array)
        share = {"few": 1.5 / max(1, array.size), "many": 0.1, "numbers": 0.1}.get(kind, 0.0)
        chosen = rng.random(array.shape) < share
        special = SPECIAL[3:] if kind == "numbers" else SPECIAL
        values[name] = np.where(chosen, rng.choice(special, array.shape), array).astype(np.float32)
    return values


def _scale(rng: np.random.Generator, array: Array) -> Array:
    """An array with scales from 1e-6 to 1e6 along one of its axes."""
    axis = int(rng.integers(max(1, array.ndim)))
    shape = [-1 if place == axis else 1 for place in range(array.ndim)]
    scales = 10.0 ** rng.uniform(-6, 6, array.shape[axis] if array.ndim else 1)
    return np.asarray(array * scales.reshape(shape or ()), np.float32)


def check(model: onnx.ModelProto, seed: int) -> None:
    """Compiles and runs a model on special values.

    Raises:
        Refused: the importer says that it does not support it, or the oracle cannot judge it.
        Wrong: a NaN, an infinity or a number where the oracle has another.
    """
    given = feeds(model, seed)
    model = with_shapes(model)
    exact, narrow, room = _judge(model, given, seed)
    try:
        network = load_network(model, "fuzz")
    except (UnsupportedModelError, GraphError) as error:
        raise Refusal(f"{type(error).__name__}: {error}") from None
    outputs = compiled_outputs(network, given, *_schedules())
    for value, ours in zip(model.graph.output, outputs, strict=True):
        compare(value.name, ours, exact[value.name], narrow[value.name], room[value.name])


def compare(name: str, ours: Array, exact: Array, narrow: Array, room: Array) -> None:
    """Holds an output against the oracle.

    Args:
        name: name of the output.
        ours: output of the executable.
        exact: output in float64.
        narrow: output in float32, whose elements count where they are of the same kind.
        room: largest distance of each element from `exact`.

    Raises:
        Wrong: an element of another kind, or too far away.
    """
    if ours.shape != narrow.shape:
        raise Wrong(f"{name} must have shape {narrow.shape}, but got {ours.shape}")
    judged = _kind(exact) == _kind(narrow)
    if ours.dtype.kind != "f":
        wrong = judged & (ours != exact)
    else:
        with np.errstate(invalid="ignore", over="ignore"):
            off, theirs = (np.abs(a.astype(np.float64) - exact) for a in (ours, narrow))
        # A square that overflows on the way, as in a norm, takes float32 far from float64 and leaves a finite number.
        judged &= ~np.isfinite(exact) | (theirs <= room)
        finite = np.isfinite(exact) & judged
        wrong = (judged & (_kind(ours) != _kind(exact))) | (finite & ~(off <= room))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise Wrong(
            f"{name} must agree with float64 within {float(room[at]):.3g}, but got {ours[at]} for {exact[at]} at {at}, "
            f"{int(wrong.sum())} of {wrong.size} wrong"
        )


def _kind(array: Array) -> Array:
    """0 for numbers, 1 for NaN, 2 and 3 for infinities of either sign."""
    if array.dtype.kind != "f":
        return np.zeros(array.shape, np.int8)
    return np.where(np.isnan(array), 1, np.where(np.isposinf(array), 2, np.where(np.isneginf(array), 3, 0)))


def _judge(model: onnx.ModelProto, feeds: dict[str, Array], seed: int) -> tuple[dict[str, Array], ...]:
    """Outputs in float64 and in float32, and the room of each element."""
    rng = np.random.default_rng([seed, 4])
    try:
        with np.errstate(all="ignore"):
            exact, narrow = evaluate_in_float64(model, feeds), evaluate_nodes(model, feeds)
            moved = [_perturb(model, feeds, rng) for _ in range(DRAWS)]
    except NodeError as error:
        raise Refusal(f"NodeError: {str(error)[:200]}") from None
    if any(other[name].shape != exact[name].shape for other in moved for name in exact):
        raise Refusal("a shape that changes with the rounding of a scale")
    if any(_jumps(model, name) for name in exact):
        raise Refusal("a computed number near a step may lie on either side of it")
    if reason := _not_judged(model):
        raise Refusal(reason)
    room = {}
    for name, array in exact.items():
        if array.dtype.kind != "f":
            room[name] = np.zeros(array.shape)
            continue
        with np.errstate(all="ignore"):
            spread = np.max([np.abs(other[name] - array) for other in moved], axis=0)
        # Denormals of float32 may be rounded to zero, and what was drawn may move an element less than it could.
        room[name] = ROOM * np.where(np.isnan(spread), np.inf, spread) + 16 * ROUNDING * np.abs(array) + 1e-36
    return exact, narrow, room


def _jumps(model: onnx.ModelProto, name: str) -> bool:
    """Tells whether an output depends on a step function of a computed number."""
    makers = {output: node for node in model.graph.node for output in node.output}
    known = {value.name for value in model.graph.input} | {weight.name for weight in model.graph.initializer}
    stack, seen = [name], set()
    while stack:
        value = stack.pop()
        node = makers.get(value)
        if node is None or value in seen:
            continue
        seen.add(value)
        if node.op_type in STEPS and any(read not in known for read in node.input if read):
            return True
        stack += node.input
    return False


def _not_judged(model: onnx.ModelProto) -> str:
    """Says why the oracle cannot judge infinities and NaN in a model; "" where it can."""
    spread = "what is no number spreads where weights of our own are zero, see SPREAD of the contract"
    for node in model.graph.node:
        attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        if node.op_type == "ConvTranspose" and max(attributes.get("strides", [1])) > 1:
            return spread
        if node.op_type in ("Resize", "Upsample") and attributes.get("mode", b"nearest") != b"nearest":
            return spread
        if node.op_type == "ReduceLogSumExp":  # PyTorch's is infinity, and so is ours
            return "the reference subtracts an infinity from itself"
    return ""


def _perturb(model: onnx.ModelProto, feeds: dict[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    """Outputs in float64 with every float changed by up to one rounding of float32, at random."""

    def perturb_array(array: Array) -> Array:
        if array.dtype.kind != "f":
            return array
        wide = array.astype(np.float64)
        return wide * (1 + ROUNDING * rng.uniform(-1, 1, wide.shape)) + 1e-45 * rng.uniform(-1, 1, wide.shape)

    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    values = {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer} | feeds
    values = {name: perturb_array(array) for name, array in values.items()}
    for node in model.graph.node:
        values |= {name: perturb_array(array) for name, array in run_node(node, values, opset).items()}
    return {value.name: values[value.name] for value in model.graph.output}


@cache
def _schedules() -> tuple[Schedules, Settings]:
    settings = settings_with(threads=2)
    return Schedules(None, settings, Limits(max_error=0.0)), settings
