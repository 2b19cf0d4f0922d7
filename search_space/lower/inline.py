"""Inlining: stages marked so disappear into the bodies of their consumers."""

from __future__ import annotations

from dataclasses import replace

from search_space.ir.expr import Expr, substitute, transform
from search_space.schedule.state import Stage, State


def inline_stages(state: State) -> State:
    """The state without inlined stages: every read of one is its body at the indices read."""
    inlined = _inlined(state)
    kept = (replace(s, body=_expand(s.body, inlined)) for s in state.stages if s.attach.kind != "inline")
    return replace(state, stages=tuple(kept))


def expanded(stage: Stage, state: State) -> Expr:
    """The body of a stage, every read of an inlined one put in."""
    return _expand(stage.body, _inlined(state))


def _inlined(state: State) -> dict[str, Stage]:
    """The inlined stages by name, in terms of those that are not."""
    found: dict[str, Stage] = {}
    for stage in state.stages:
        # Stages stand producers first: what this one reads of inlined ones is expanded already.
        if stage.attach.kind == "inline":
            found[stage.name] = replace(stage, body=_expand(stage.body, found))
    return found


def _expand(body: Expr, inlined: dict[str, Stage]) -> Expr:
    if not inlined:
        return body

    def visit(node: Expr) -> Expr | None:
        if node.op == "load" and node.args[0] in inlined:
            stage = inlined[node.args[0]]
            # An index may itself read an inlined stage, as that of a gather does.
            indices = [transform(i, visit) for i in node.args[1:]]
            return substitute(stage.body, {a.name: i for a, i in zip(stage.axes, indices, strict=True)})
        return None

    return transform(body, visit)
