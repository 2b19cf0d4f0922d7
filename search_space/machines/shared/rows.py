"""Row-wise definitions: softmax, layer norm, reductions along the last axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from search_space.ir.expr import Expr, lift, var, variables, walk
from search_space.ir.polynomial import canon
from search_space.schedule.state import Stage, State
from search_space.sketch.base import Draft
from search_space.sketch.reads import in_row


def row_group(draft: Draft, output: Stage, along: Callable[[Stage], bool] | None = None) -> list[Stage] | None:
    """Returns all stages of a row, producers first, if each has the output's leading axes and reads its row; else None.

    Args:
        along: test whether a reduction runs along rows, by default `along_last`.
    """
    if output.name not in draft.state.outputs:
        return None
    live = [s for s in draft.state.stages if s.attach.kind != "inline"]
    reductions = [s for s in live if s.reducer is not None]
    if not reductions or any(not (along or along_last)(s) for s in reductions):
        return None
    rows = len(reductions[0].axes)
    if rows == 0 or any(len(s.axes) != rows for s in reductions):
        return None
    for stage in live:
        same = [a.extent for a in stage.axes[:rows]] == [a.extent for a in output.axes[:rows]]
        if not same or len(stage.axes) > rows + 1:
            return None
        if any(not in_row(draft, stage, other.name, rows) for other in live):
            return None
    return live


def along_last(stage: Stage) -> bool:
    """Tells whether a reduction runs along the last dimension of all its reads, over one axis."""
    if len(stage.reduce_axes) != 1:
        return False
    axis = stage.reduce_axes[0].name
    reads = [n for n in walk(stage.body) if n.op == "load"]
    wide = [n for n in reads if any(axis in variables(i) for i in n.args[1:])]
    spatial = {a.name for a in stage.axes}
    return bool(wide) and all(
        variables(n.args[-1]) == {axis} and all(variables(i) <= spatial for i in n.args[1:-1]) for n in wide
    )


def last_reduced(state: State, stage: Stage) -> tuple[str, ...]:
    """Returns the reduce axes along the last dimensions of all reads of a reduction, outermost first.

    All elements of these axes are contiguous. Returns () without such an axis, or if reads differ.
    """
    if along_last(stage):
        return stage.reduction
    reduced = {a.name: a.extent for a in stage.reduce_axes}
    wide = [n for n in walk(stage.body) if n.op == "load" and any(variables(i) & reduced.keys() for i in n.args[1:])]
    found = {_last_axes(n.args[1:], _shape(state, n.args[0]), reduced) for n in wide}
    return found.pop() if len(found) == 1 else ()


def _last_axes(indices: Sequence[Expr], shape: Sequence[Expr], reduce_extents: dict[str, Expr]) -> tuple[str, ...]:
    """Returns the reduce axes along the last dimensions of one read; () if another dimension has several axes."""
    run: list[str] = []
    for index, extent in zip(reversed(indices), reversed(shape), strict=True):
        own = variables(index) & reduce_extents.keys()
        if len(own) != 1:
            break
        (name,) = own
        rest = canon(index - var(name))
        if variables(rest) & reduce_extents.keys() or name in run:
            break
        run.insert(0, name)
        if rest is not lift(0) or canon(reduce_extents[name] - extent) is not lift(0):
            break  # a part of the dimension: elements of outer dimensions are not contiguous with it
    others = indices[: len(indices) - len(run)]
    plain = all(not variables(i) & set(run) and len(variables(i) & reduce_extents.keys()) <= 1 for i in others)
    return tuple(run) if plain else ()


def _shape(state: State, name: str) -> list[Expr]:
    source = state.input(name) or state.stage(name)
    return [lift(extent) for extent in source.shape]
