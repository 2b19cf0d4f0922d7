"""Replacement of stages of a definition, such as by a placeholder for a value that is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from search_space.ir.expr import Expr, transform
from search_space.schedule.state import operations
from search_space.tensor import Operation, Tensor


def replace_stages(tensor: Tensor, replacements: Mapping[Operation, Tensor]) -> Tensor:
    """Replaces stages and placeholders that a tensor depends on.

    Args:
        tensor: tensor to rebuild.
        replacements: stage → tensor of its shape that is read in its place.
    """
    done: dict[Operation, Tensor] = dict(replacements)

    def visit(op: Operation) -> Tensor:
        if op not in done:
            sources = {source.op: visit(source.op) for source in op.inputs}
            if all(new.op is old for old, new in sources.items()):
                done[op] = Tensor(op)
            else:
                assert op.body is not None
                body = replace_loads(op.body, {old: new.__getitem__ for old, new in sources.items()})
                done[op] = Tensor(replace(op, body=body, inputs=tuple(dict.fromkeys(sources.values()))))
        return done[op]

    return visit(tensor.op)


def replace_loads(body: Expr, readers: Mapping[Operation, Callable[[tuple[Expr, ...]], Expr]]) -> Expr:
    """Replaces reads of some tensors by a function of their indices."""

    def visit(node: Expr) -> Expr | None:
        if node.op != "load" or node.args[0].op not in readers:
            return None
        return readers[node.args[0].op](tuple(transform(index, visit) for index in node.args[1:]))

    return transform(body, visit)


def list_placeholders(tensor: Tensor) -> list[Operation]:
    """Lists the placeholders that a tensor depends on."""
    return [op for op in operations([tensor]) if op.body is None]
