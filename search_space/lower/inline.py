"""Inlining: the bodies of stages that are marked for it replace the reads of these stages in their consumers."""

from __future__ import annotations

from dataclasses import replace

from search_space.ir.expr import Expr, substitute, transform
from search_space.schedule.state import Stage, State


def inline_stages(state: State) -> State:
    """Removes inlined stages from the state: every read of one becomes its body at the indices read."""
    inlined = _collect_inline_stages(state)
    kept = (replace(s, body=_expand(s.body, inlined)) for s in state.stages if s.attach.kind != "inline")
    return replace(state, stages=tuple(kept))


def expand_body(stage: Stage, state: State) -> Expr:
    """Returns the body of a stage with every read of an inlined one replaced."""
    return _expand(stage.body, _collect_inline_stages(state))


def _collect_inline_stages(state: State) -> dict[str, Stage]:
    """Returns the inlined stages by name, in terms of the other stages."""
    inlined: dict[str, Stage] = {}
    for stage in state.stages:
        # Stages are ordered producers first: inlined stages that this one reads are expanded already.
        if stage.attach.kind == "inline":
            inlined[stage.name] = replace(stage, body=_expand(stage.body, inlined))
    return inlined


def _expand(body: Expr, stages: dict[str, Stage]) -> Expr:
    if not stages:
        return body

    def visit(node: Expr) -> Expr | None:
        if node.op == "load" and node.args[0] in stages:
            stage = stages[node.args[0]]
            # An index may itself read an inlined stage, as that of a gather does.
            indices = [transform(i, visit) for i in node.args[1:]]
            return substitute(stage.body, {a.name: i for a, i in zip(stage.axes, indices, strict=True)})
        return None

    return transform(body, visit)
