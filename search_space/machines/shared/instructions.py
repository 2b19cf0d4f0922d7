"""Instructions of the machine that compute the body of a reduction, and the layouts of their operands.

Constants are packed before the first call. Other operands are copied tile by tile, with neighbours along the sum next
to each other: this pays off if many rows are multiplied by each element.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from search_space.dtypes import NARROW
from search_space.hardware import Hardware
from search_space.intrinsics import BF16_DOT, LANES_APART, PAIR_PRODUCTS, available
from search_space.ir.expr import Expr, var, variables, walk
from search_space.lower.inline import expand_body
from search_space.machines.shared.groups import group_tiles, in_groups, of_one_group
from search_space.schedule.intrinsics import TensorIntrin
from search_space.schedule.patterns import expression_pattern
from search_space.schedule.state import Axis, Stage
from search_space.sketch.base import Draft

INTERLEAVED_INTRINSICS = frozenset({BF16_DOT.name})
"""Instructions for which an operand that is no constant is copied in their order."""

EACH = "#"
"""Prefix of the name of a dimension that is no axis."""

FEW_ROWS = 4
"""Number of rows that share an operand, below which a new layout costs more than it saves."""

FEW_VECTORS = 4
"""Number of vectors that share an operand, below which a copy of it in float32 costs more than it saves."""


def packable(draft: Draft, stage: Stage, node: Expr) -> tuple[str, ...] | None:
    """Returns the axes that index a constant without a layout, each alone and the last spatial one among them.

    A dimension of which the body reads every element is named `EACH` and its number.
    """
    source = draft.state.input(node.args[0]) if node.op == "load" else None
    if source is None or not source.constant or source.layout is not None:
        return None
    axes = tuple(
        str(index.args[0]) if index.op == "var" else f"{EACH}{place}" if _each(stage, node, place, extent) else ""
        for place, (index, extent) in enumerate(zip(node.args[1:], source.shape, strict=True))
    )
    last = stage.axes[-1].name
    return axes if last in axes and "" not in axes and len(set(axes)) == len(axes) else None


def _each(stage: Stage, node: Expr, position: int, extent: int) -> bool:
    """Tells whether the body reads every element along a dimension of a load's source, each at a constant index."""
    read = [n.args[1 + position] for n in walk(stage.body) if n.op == "load" and n.args[0] == node.args[0]]
    return extent > 1 and all(i.is_const for i in read) and {i.value for i in read} == set(range(extent))


def in_words(draft: Draft, stage: Stage, node: Expr, axis: str, lanes: int, depth: int) -> bool:
    """Tells whether a load gives each lane along the stage's last axis its own word, `depth` neighbours along `axis`.

    The words of neighbouring lanes lie side by side.
    """
    last, (*others, lane, word) = stage.axes[-1], node.args[1:] if len(node.args) > 2 else (None, None)
    if lane is not var(last.name) or word is not var(axis) or any(variables(i) & {last.name, axis} for i in others):
        return False
    source = draft.state.input(node.args[0]) or draft.state.stage(node.args[0])
    if not isinstance(source, Stage) or not group_tiles(stage, lanes):
        return False
    return int(source.axes[-1].extent.value) == depth


def interleavable(draft: Draft, stage: Stage, node: Expr, axis: str) -> bool:
    """Tells whether a load of an input may read a copy with neighbours along `axis` next to each other.

    Its indices are axes, each by itself, the last spatial one and `axis` among them.
    """
    source = draft.state.input(node.args[0]) if node.op == "load" else None
    if source is None or source.constant or source.name in draft.copies:
        return False
    axes = [str(i.args[0]) if i.op == "var" else "" for i in node.args[1:]]
    rows = prod(int(a.extent.value) for a in stage.axes if a.name not in axes)
    plain = "" not in axes and len(set(axes)) == len(axes)
    return plain and rows >= FEW_ROWS and {stage.axes[-1].name, axis} <= set(axes)


@dataclass(frozen=True)
class Way:
    """A way to compute the products of a reduction.

    Attributes:
        draft: schedule, with the copies of factors that the way needs.
        intrinsic: instruction for the innermost loops, and the axis that it sums over; None: multiply-adds.
    """

    draft: Draft
    intrinsic: tuple[TensorIntrin, Axis] | None


def list_ways(draft: Draft, sums: Stage, hardware: Hardware) -> list[Way]:
    """Lists the ways to compute a reduction's products: by an instruction, and 16-bit factors by multiply-adds.

    Multiply-adds are left out if the instruction multiplies clearly more in a cycle, or if they would gather the other
    factor. The shared factor is widened first if enough vectors share it.
    """
    match = matching_intrinsic(draft, sums, hardware)
    ways = [Way(draft, match)]
    if match is not None and (not pays_to_widen(match[0], hardware) or _gathers(draft, sums)):
        return ways
    many = count_vectors(sums, hardware) >= FEW_VECTORS
    if many and (widened := widen_shared(draft, sums, hardware)) is not None:
        widened = widened.variant("widened")
        ways.append(Way(widened, matching_intrinsic(widened, widened.stage(sums.name), hardware)))
    elif match is not None:
        ways.append(Way(draft.variant("multiply_adds"), None))
    return ways


def count_vectors(sums: Stage, hardware: Hardware) -> int:
    """Counts whole vectors along the last axis: those that share an element of the other factor."""
    return int(sums.axes[-1].extent.value) // hardware.float_lanes if sums.axes else 0


def pays_to_widen(intrinsic: TensorIntrin, hardware: Hardware) -> bool:
    """Tells whether multiply-adds of float32 may be as fast as an instruction for 16-bit floats."""
    return intrinsic.op.inputs[0].dtype in NARROW and not hardware.rates.gains_by_dots


def _gathers(draft: Draft, sums: Stage) -> bool:
    """Tells whether vectors of a factor are elements of several rows, which no packing brings together."""
    last = sums.axes[-1].name
    apart = [n for n in walk(sums.body) if n.op == "load" and any(last in variables(i) for i in n.args[1:-1])]
    return any(packable(draft, sums, n) is None for n in apart)


def widen_shared(draft: Draft, sums: Stage, hardware: Hardware) -> Draft | None:
    """Stores the 16-bit factor that all lanes of a vector share as float32; None if there is no such factor.

    An input is copied. A stage that computes the factor, such as a padded input, stores float32 itself. The lanes of a
    vector lie in one group of channels, if groups are whole vectors.
    """
    body, last = of_one_group(sums.body, sums, hardware.float_lanes), sums.axes[-1].name
    loads = [n for n in walk(body) if n.op == "load"]
    apart = {n.args[0] for n in loads if any(last in variables(i) for i in n.args[1:])}
    shared = {n.args[0] for n in loads if n.dtype in NARROW} - apart
    if len(shared) != 1 or not apart:
        return None
    (name,) = shared
    source = draft.state.input(name) or draft.state.stage(name)
    if isinstance(source, Stage) and source.reducer is None and name not in draft.state.outputs:
        return draft.widen(name)
    if not isinstance(source, Stage) and source.constant:
        return None
    draft, copy = draft.cache_read(name, "global", sums.name)
    return replace(draft, copies=draft.copies | {copy}).widen(copy)


def matching_intrinsic(draft: Draft, stage: Stage, hardware: Hardware) -> tuple[TensorIntrin, Axis] | None:
    """Finds an instruction of the machine for the stage's body over its last axis and a reduce axis, and that axis.

    The shared operand must run along the reduce axis in memory, if the instruction reads several of its elements at
    once. The other operand must be a constant, which packing lays out, or an input that may be copied in the order of
    the instruction. If lanes have their own factors, one operand is such a constant, and groups of lanes read the
    other. The body is taken after inlining: an instruction does not compute inlined stages.

    If groups are whole vectors, the lanes of a vector share their reads.
    """
    if not stage.axes:
        return None
    last = stage.axes[-1].name
    body = of_one_group(expand_body(stage, draft.state), stage, hardware.float_lanes)
    loads = [n for n in walk(body) if n.op == "load"]
    shared = [n for n in loads if last not in {v for i in n.args[1:] for v in variables(i)}]
    weights = [n for n in loads if n not in shared]

    def laid_out(intrinsic: TensorIntrin, axis: Axis, node: Expr) -> bool:
        if node not in walk(stage.body):
            return False
        if packable(draft, stage, node):
            return True
        if intrinsic in LANES_APART:
            groups = in_groups(stage, node, axis.name, *intrinsic.extents)
            return groups or in_words(draft, stage, node, axis.name, *intrinsic.extents)
        return intrinsic.name in INTERLEAVED_INTRINSICS and interleavable(draft, stage, node, axis.name)

    for intrinsic in available(hardware):
        for axis in stage.reduce_axes:
            if (
                stage.reducer == intrinsic.reducer
                and int(axis.extent.value) % intrinsic.extents[1] == 0
                and expression_pattern(body, [last, axis.name]) == intrinsic.pattern
                and (intrinsic in PAIR_PRODUCTS or all(n.args[-1] is var(axis.name) for n in shared))
                and all(laid_out(intrinsic, axis, n) for n in weights)
            ):
                return intrinsic, axis
    return None
