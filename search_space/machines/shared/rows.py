"""Row-wise definitions: softmax, layer norm, reductions along the last axis."""

from __future__ import annotations

from search_space.ir.expr import variables, walk
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft
from search_space.sketch.reads import in_row


def row_group(draft: Draft, output: Stage) -> list[Stage] | None:
    """All stages of a row, producers first, if each has the output's leading axes and reads its row; else None."""
    if output.name not in draft.state.outputs:
        return None
    live = [s for s in draft.state.stages if s.attach.kind != "inline"]
    reductions = [s for s in live if s.reducer is not None]
    if not reductions or any(not along_last(s) for s in reductions):
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
    """Whether a reduction runs along the last dimension of all it reads, over one axis."""
    if len(stage.reduce_axes) != 1:
        return False
    axis = stage.reduce_axes[0].name
    reads = [n for n in walk(stage.body) if n.op == "load"]
    wide = [n for n in reads if any(axis in variables(i) for i in n.args[1:])]
    spatial = {a.name for a in stage.axes}
    return bool(wide) and all(
        variables(n.args[-1]) == {axis} and all(variables(i) <= spatial for i in n.args[1:-1]) for n in wide
    )
