"""Instructions of the machine that compute the body of a reduction, and the constants they want laid out for them."""

from __future__ import annotations

from search_space.hardware import Hardware
from search_space.intrinsics import available
from search_space.ir.expr import Expr, var, variables, walk
from search_space.lower.inline import expanded
from search_space.schedule.intrinsics import TensorIntrin
from search_space.schedule.patterns import shape_of
from search_space.schedule.state import Axis, Stage
from search_space.sketch.base import Draft


def packable(draft: Draft, stage: Stage, node: Expr) -> tuple[str, ...] | None:
    """The axes that index a constant not packed so far, each by itself and the last spatial one among them."""
    source = draft.state.input(node.args[0]) if node.op == "load" else None
    if source is None or not source.constant or source.layout is not None:
        return None
    axes = tuple(str(i.args[0]) if i.op == "var" else "" for i in node.args[1:])
    last = stage.axes[-1].name
    return axes if last in axes and "" not in axes and len(set(axes)) == len(axes) else None


def matching_intrinsic(draft: Draft, stage: Stage, hardware: Hardware) -> tuple[TensorIntrin, Axis] | None:
    """An instruction of the machine that computes the stage's body over its last axis and a reduce axis, and that axis.

    The shared operand must run along the reduce axis in memory, the other be a constant, which packing lays out. The
    body is that with inlined stages put in: what these compute, an instruction does not.
    """
    if not stage.axes:
        return None
    last, body = stage.axes[-1].name, expanded(stage, draft.state)
    loads = [n for n in walk(body) if n.op == "load"]
    shared = [n for n in loads if last not in {v for i in n.args[1:] for v in variables(i)}]
    weights = [n for n in loads if n not in shared]
    for intrinsic in available(hardware):
        for axis in stage.reduce_axes:
            if (
                stage.reducer == intrinsic.reducer
                and int(axis.extent.value) % intrinsic.extents[1] == 0
                and shape_of(body, [last, axis.name]) == intrinsic.pattern
                and all(n.args[-1] is var(axis.name) for n in shared)
                and all(n in walk(stage.body) and packable(draft, stage, n) for n in weights)
            ):
                return intrinsic, axis
    return None
