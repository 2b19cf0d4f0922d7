"""Conditions on a complete schedule before it is lowered, for any numbers."""

from __future__ import annotations

from search_space.ir.stmt import THREAD_TAGS
from search_space.schedule.errors import ScheduleError
from search_space.schedule.state import SplitRelation, Stage, State


def check_schedule(state: State) -> None:
    """Checks every stage of a schedule without inlined stages.

    Raises:
        ScheduleError: a schedule that would not compute its expressions.
    """
    for stage in state.stages:
        if stage.attach.kind == "at":
            _check_attached(state, stage)
        for relation in stage.relations:
            if isinstance(relation, SplitRelation) and relation.tail == "peel":
                _check_peel(stage, relation)
            if isinstance(relation, SplitRelation) and relation.tail == "clamp" and stage.reducer:
                _check_clamped_reduction(stage, relation)


def list_outer_loops(state: State, stage: Stage) -> tuple[tuple[str, str], ...]:
    """Returns the loops around a stage's place as (stage, leaf), outermost first."""
    if stage.attach.kind == "root":
        return ()
    target = state.stage(stage.attach.stage)
    if stage.attach.leaf not in target.leaves:
        raise ScheduleError(
            f"`axis` must be a loop of {target.name} ({', '.join(target.leaves)}), "
            f"but {stage.name} is computed at {stage.attach.leaf!r}"
        )
    inner = target.leaves[: target.leaves.index(stage.attach.leaf) + 1]
    return list_outer_loops(state, target) + tuple((target.name, leaf) for leaf in inner)


def _check_attached(state: State, stage: Stage) -> None:
    loops = list_outer_loops(state, stage)
    consumers = state.consumers(stage.name)
    if not consumers:
        raise ScheduleError(f"an attached stage must be read by another, but nothing reads {stage.name}")
    # The buffer is allocated at that loop and refilled in each of its iterations: it does not exist outside of it.
    for consumer in consumers:
        around = list_outer_loops(state, consumer) + tuple((consumer.name, leaf) for leaf in consumer.leaves)
        if around[: len(loops)] != loops:
            raise ScheduleError(
                f"every consumer must stand inside the loop a stage is computed at, but {consumer.name} reads "
                f"{stage.name} outside of {stage.attach.stage}.{stage.attach.leaf}"
            )


def _check_peel(stage: Stage, relation: SplitRelation) -> None:
    outer, inner = relation.children
    # Lowering writes the rest as a second copy of the outer loop's body, where the inner loop has another extent: it
    # must find both loops as they were split.
    for child in relation.children:
        if child not in stage.leaves:
            raise ScheduleError(f"a peeled loop must not be split or fused again, but got {stage.name}.{child}")
    if stage.leaves.index(outer) > stage.leaves.index(inner):
        raise ScheduleError(f"a peeled loop must keep its order, but got {stage.name}.{inner} around {outer}")


def _check_clamped_reduction(stage: Stage, relation: SplitRelation) -> None:
    """Checks that tiles, which overlap, are each initialised and reduced before the next one starts."""
    reduced = [i for i, leaf in enumerate(stage.leaves) if stage.is_reduce(leaf)]
    # All loops but the innermost determine where a tile begins; within a tile no element comes twice, so that its loop
    # may be anywhere and of any kind.
    starts = find_leaves(stage, set(relation.children[:-1]))
    # The initialisation comes before the first reduce loop: once for all loops inside of it.
    late = [leaf for leaf in starts if reduced and stage.leaves.index(leaf) > reduced[0]]
    if late:
        raise ScheduleError(
            f"`tail` must not be clamp where a reduce loop runs outside of the tiles, but {stage.name}.{late[0]} "
            f"stands inside {stage.leaves[reduced[0]]}: elements of two tiles would be reduced twice"
        )
    together = [leaf for leaf in starts if stage.kinds.get(leaf) in ("parallel", "vectorize", "vthread", *THREAD_TAGS)]
    if together:
        raise ScheduleError(
            f"`tail` must not be clamp on a {stage.kinds[together[0]]} loop of a reduction, but got {stage.name}."
            f"{together[0]}: two tiles would be reduced into the same elements at once (use cache_write)"
        )


def find_leaves(stage: Stage, loops: set[str]) -> list[str]:
    """Returns the leaves that `loops` have been split and fused into."""
    # Relations are in the order in which they were applied, and name loops that exist by then: one pass is enough.
    descendants = set(loops)
    for relation in stage.relations:
        if isinstance(relation, SplitRelation):
            if relation.parent in descendants:
                descendants |= set(relation.children)
        elif descendants & set(relation.parents):
            descendants.add(relation.child)
    return [leaf for leaf in stage.leaves if leaf in descendants]
