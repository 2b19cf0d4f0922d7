"""Instructions of the machine that compute the body of a reduction, and the layouts of their operands.

Constants are packed before the first call. Other operands are copied tile by tile, with neighbours along the sum next
to each other: this pays off if many rows are multiplied by each element.
"""

from __future__ import annotations

from math import prod

from search_space.hardware import Hardware
from search_space.intrinsics import BF16_DOT, LANES_APART, available
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


def matching_intrinsic(draft: Draft, stage: Stage, hardware: Hardware) -> tuple[TensorIntrin, Axis] | None:
    """Finds an instruction of the machine for the stage's body over its last axis and a reduce axis, and that axis.

    The shared operand must run along the reduce axis in memory. The other operand must be a constant, which packing
    lays out, or an input that may be copied in the order of the instruction. If lanes have their own factors, one
    operand is such a constant, and groups of lanes read the other. The body is taken after inlining: an instruction
    does not compute inlined stages.

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
                and all(n.args[-1] is var(axis.name) for n in shared)
                and all(laid_out(intrinsic, axis, n) for n in weights)
            ):
                return intrinsic, axis
    return None
