"""Inlining: stages marked so disappear into the bodies of their consumers."""

from __future__ import annotations

from dataclasses import replace

from search_space.ir.expr import Expr, substitute, transform
from search_space.schedule.state import Stage, State


def inline_stages(state: State) -> State:
    """The state without inlined stages: every read of one is its body at the indices read."""
    inlined: dict[str, Stage] = {}
    kept: list[Stage] = []
    for stage in state.stages:
        body = _expand(stage.body, inlined) if inlined else stage.body
        stage = replace(stage, body=body)
        if stage.attach.kind == "inline":
            inlined[stage.name] = stage
        else:
            kept.append(stage)
    return replace(state, stages=tuple(kept))


def _expand(body: Expr, inlined: dict[str, Stage]) -> Expr:
    def visit(node: Expr) -> Expr | None:
        if node.op == "load" and node.args[0] in inlined:
            stage = inlined[node.args[0]]
            indices = [transform(i, visit) for i in node.args[1:]]
            return substitute(stage.body, {a.name: i for a, i in zip(stage.axes, indices, strict=True)})
        return None

    return transform(body, visit)
