"""Bound inference: the domain, the loops and the index values of every stage, as expressions in the decisions.

Halide and TVM infer bounds of one schedule, whose numbers are known. Here tile sizes may be decision variables, and one
inference serves all candidates: regions are intervals whose ends are expressions. Shapes and indices hold for all
values of the variables; whether a tile fits an axis, or divides it, becomes a constraint on the decisions.

Stages are visited consumers first. A stage at the root computes its whole tensor. An attached one computes the union of
its consumers' reads while the loops around its place are fixed and the loops inside of it run. Its loops then run over
this region, from 0, and its buffer holds exactly this region.
"""

from __future__ import annotations

from dataclasses import dataclass

from search_space.ir.expr import Expr, ceildiv, const, maximum, minimum, product, substitute, var, variables, walk
from search_space.ir.findings import Findings
from search_space.ir.polynomial import canon, poly
from search_space.ir.regroup import recombine
from search_space.ir.simplify import Simplifier, UnboundedIndexError, interval
from search_space.ir.sizes import find_sizes, is_sized, span
from search_space.ir.stmt import THREAD_TAGS, Constraint, is_thread
from search_space.schedule.errors import ScheduleError
from search_space.schedule.state import Axis, FuseRelation, SplitRelation, Stage, State


def loop_var(stage: str, leaf: str) -> str:
    """Returns the program-wide name of a loop variable."""
    return f"{stage}.{leaf}"


def _has_exact_tiles(stage: Stage, axis: str) -> bool:
    """Tells whether a spatial axis is split into tiles that divide it."""
    splits = (r for r in stage.relations if isinstance(r, SplitRelation))
    return any(r.parent == axis and r.tail == "exact" and not stage.is_reduce(r.children[0]) for r in splits)


def _is_fused(stage: Stage, axis: str) -> bool:
    """Tells whether an axis is fused with another one as a whole, not tile by tile."""
    return any(isinstance(r, FuseRelation) and axis in r.parents for r in stage.relations)


@dataclass(frozen=True)
class Domain:
    """The part of a stage computed at its place: per axis the first index and the extent.

    Attributes:
        overrun: axes whose indices may pass the end of the tensor (under a guarded tail), so that reads need a check.
    """

    low: tuple[Expr, ...]
    extent: tuple[Expr, ...]
    overrun: frozenset[str]


@dataclass(frozen=True)
class Nest:
    """A stage's loops: extents by leaf, index values by axis (in program-wide loop variables), predicates.

    Attributes:
        local: index values relative to the domain's low corner; they address an attached stage's buffer.
        spatial_guards: conditions of guarded splits of spatial axes.
        reduce_guards: conditions of guarded splits of reduce axes.
    """

    extents: dict[str, Expr]
    values: dict[str, Expr]
    local: dict[str, Expr]
    spatial_guards: tuple[Expr, ...]
    reduce_guards: tuple[Expr, ...]


class Bounds:
    """The inference of domains and nests, consumers before producers.

    Attributes:
        domains, nests: results by stage name.
        simplify: simplifier that knows every loop's range.
        constraints: conditions of the splits on the decision variables.
    """

    def __init__(self, state: State, findings: Findings | None = None) -> None:
        self.state = state
        self.ranges: dict[str, Expr] = {}
        self.simplify = Simplifier(self.ranges, findings=Findings() if findings is None else findings)
        self.domains: dict[str, Domain] = {}
        self.nests: dict[str, Nest] = {}
        self.constraints: list[Constraint] = []
        self.kinds = {loop_var(s.name, leaf): kind for s in state.stages for leaf, kind in s.kinds.items()}
        self.uses_threads = any(kind in THREAD_TAGS for kind in self.kinds.values())
        for stage in reversed(state.stages):
            domain = self._root(stage) if stage.attach.kind == "root" else self._cover_reads(stage)
            self.domains[stage.name] = domain
            self.nests[stage.name] = self._nest(stage, domain)

    def path(self, stage: Stage) -> list[str]:
        """Returns the loop variables around a stage's place, outermost first."""
        if stage.attach.kind == "root":
            return []
        target = self.state.stage(stage.attach.stage)
        inner = target.leaves[: target.leaves.index(stage.attach.leaf) + 1]
        return self.path(target) + [loop_var(target.name, leaf) for leaf in inner]

    def _root(self, stage: Stage) -> Domain:
        zeros = tuple(const(0) for _ in stage.axes)
        return Domain(zeros, tuple(a.extent for a in stage.axes), frozenset())

    def _cover_reads(self, stage: Stage) -> Domain:
        """Computes the region that all reads of a stage cover, in loops inside its place."""
        outside = self._outside(stage)
        lows: list[list[tuple[Expr, Expr]]] = [[] for _ in stage.axes]
        overrun: set[str] = set()
        # Regions are cut to the tensor by minimum and maximum, which would end up in the extents of loops that threads
        # are bound to. Reads by loops that remain inside need no cut; neither do tiles that divide an axis.
        inside_only = {a.name for a in stage.axes}
        for consumer in self.state.consumers(stage.name):
            nest = self.nests[consumer.name]
            inside = self.path(consumer) + [loop_var(consumer.name, leaf) for leaf in consumer.leaves]
            # loops between the stage's place and the read: the interval is over all of their values
            relaxed = {v: self.ranges[v] for v in inside if v not in outside}
            covered = self._whole_parents(consumer, relaxed)
            # A clamped or peeled axis all of whose loops run is one variable over the extent, which they cover exactly.
            # Interval arithmetic would not see that: clamped indices are a minimum, a peeled rest is another loop.
            relaxed |= {loop_var(consumer.name, p): nest.extents[p] for p in covered}
            values = self._values(consumer, nest.extents, self.domains[consumer.name], covered)
            loose = self._overrun_axes(consumer, covered)
            may_leave = loose | self._partly_run_clamped(consumer, relaxed, covered)
            for node in walk(consumer.body):
                if node.op != "load" or node.args[0] != stage.name:
                    continue
                for axis, index, regions in zip(stage.axes, node.args[1:], lows, strict=True):
                    at = substitute(index, values)
                    low, width = self._region(axis, self.recombine_index(stage, at), relaxed)
                    regions.append((low, width))
                    past = canon(low + width - axis.extent + 1)
                    stays = self._runs_inside(consumer, index, axis, may_leave)
                    if stays and _is_fused(consumer, str(index.args[0])):
                        # The quotient of a fused loop covers a row more than its loops need, perhaps past the last.
                        stays = self.simplify.at_most_zero(past)
                    if not stays or not (self.uses_threads or _has_exact_tiles(consumer, str(index.args[0]))):
                        inside_only.discard(axis.name)
                    # a loop may overrun and an index computed from it still be inside: h // 4 of 7 rows in tiles of 4
                    if variables(index) & loose and not self.simplify.at_most_zero(past):
                        overrun.add(axis.name)
        starts, extent = [], []
        for axis, regions in zip(stage.axes, lows, strict=True):
            if axis.name in stage.full_axes:
                regions = [(const(0), canon(axis.extent - 1))]
            first, size = self._union(stage, axis, regions)
            # A region that overruns under a guard, and does not begin before the tensor, is not moved: its indices
            # need no minimum, and reads past the end are checked instead.
            if axis.name not in inside_only and (axis.name not in overrun or not self.simplify.nonnegative(first)):
                first, size = self._moved_inside(axis, first, size)
                overrun.discard(axis.name)
            starts.append(first)
            extent.append(size)
        return Domain(tuple(starts), tuple(extent), frozenset(overrun))

    def recombine_index(self, stage: Stage, index: Expr) -> Expr:
        """Puts the index at which an attached stage is read together again if fused loops took it apart.

        In `f // 8 * 8 + f % 8` interval arithmetic sees two terms, and not that both come from one `f`.
        """
        fused = any(isinstance(r, FuseRelation) for c in self.state.consumers(stage.name) for r in c.relations)
        return recombine(self.simplify(index), self.simplify) if fused else index

    def _outside(self, stage: Stage) -> set[str]:
        """Returns the loops that are fixed where a stage is computed.

        All threads of a block together compute a stage in shared memory, for all of them: the loops of threads around
        its place run, and virtual threads share it too.
        """
        if stage.scope != "shared":
            return set(self.path(stage))
        return {v for v in self.path(stage) if not is_thread(self.kinds.get(v, "serial"))}

    def _runs_inside(self, consumer: Stage, index: Expr, axis: Axis, leaving: set[str]) -> bool:
        """Tells whether an index is an axis of the consumer with this axis's extent and a region inside the tensor.

        Exact splits reach no further than the extent: this limit on the decisions is unknown to the arithmetic.
        """
        if index.op != "var" or index.args[0] in leaving:
            return False
        return any(a.name == index.args[0] and a.extent is axis.extent for a in (*consumer.axes, *consumer.reduce_axes))

    def _region(self, axis: Axis, index: Expr, loop_ranges: dict[str, Expr]) -> tuple[Expr, Expr]:
        """Returns the first index read and the width; the whole axis if arithmetic does not bound it."""
        try:
            bounds = interval(index, loop_ranges, self.simplify)
        except UnboundedIndexError:  # such as an index that is read from a tensor
            return const(0), canon(axis.extent - 1)
        return bounds.low, bounds.width

    def _moved_inside(self, axis: Axis, first: Expr, size: Expr) -> tuple[Expr, Expr]:
        """Shifts the region into the tensor; elements outside, read under a false condition, are not needed."""
        size = self.simplify(minimum(size, axis.extent))
        if not self.simplify.at_most_zero(canon(first + size - axis.extent)):
            first = self.simplify(minimum(first, axis.extent - size))
        if not self.simplify.nonnegative(first):
            first = self.simplify(maximum(first, const(0)))
        return first, size

    def _union(self, stage: Stage, axis: Axis, spans: list[tuple[Expr, Expr]]) -> tuple[Expr, Expr]:
        """Returns the first index and the extent that several reads cover along an axis, each given by start and width.

        Which of two symbolic ends is lower must be the same for all candidates, so they may differ by a number alone.
        """
        whole = (const(0), canon(axis.extent - 1))
        if whole in spans:
            return const(0), axis.extent
        base, width = spans[0]
        for low, other in spans[1:]:
            shift = poly(canon(low - base))
            if any(m for m in shift):
                raise ScheduleError(
                    f"reads of an attached stage must lie a fixed distance apart, but {stage.name}.{axis.name} is read "
                    f"from {base} and from {low}"
                )
            distance = shift.get((), 0)
            if distance < 0:
                base, width = low, self._larger(canon(width - distance), other)
            else:
                width = self._larger(width, canon(other + distance))
        return base, canon(width + 1)

    def _larger(self, a: Expr, b: Expr) -> Expr:
        return self.simplify.extremum("max", a, b)

    def guarded_reduce_axes(self, stage: Stage) -> set[str] | None:
        """Returns the reduce axes that pass their end under a guard; None if a loop derived from them does."""
        splits = [r for r in stage.relations if isinstance(r, SplitRelation) and r.tail == "guard"]
        guarded = {r.parent for r in splits if stage.is_reduce(r.children[0])}
        return guarded if guarded <= {a.name for a in stage.reduce_axes} else None

    def _overrun_axes(self, stage: Stage, full_axes: frozenset[str]) -> set[str]:
        """Returns the axes of `stage` that run past their end in some iteration of its loops.

        Overruns propagate from loops back to axes: an axis overruns if a loop split or fused from it does.
        """
        loose = set(self.domains[stage.name].overrun)
        for relation in reversed(stage.relations):
            names = set(relation.children) if isinstance(relation, SplitRelation) else {relation.child}
            if isinstance(relation, SplitRelation):
                open_tail = relation.tail in ("guard", "peel") and relation.parent not in full_axes
                if open_tail or names & loose:
                    loose.add(relation.parent)
            elif names & loose:
                loose |= set(relation.parents)
        return loose

    def _partly_run_clamped(self, stage: Stage, loop_ranges: dict[str, Expr], full_axes: frozenset[str]) -> set[str]:
        """Returns axes with a clamped split of which a loop outside the innermost one runs.

        Each tile is moved inside, but a block of several tiles has the same width everywhere. For 5 rows in blocks of 2
        tiles of 1, the last block holds one row, and a region two rows wide there ends past the tensor.
        """
        running = {leaf for leaf in stage.leaves if loop_var(stage.name, leaf) in loop_ranges}
        clamped: set[str] = set()
        for relation in reversed(stage.relations):
            children = relation.children if isinstance(relation, SplitRelation) else (relation.child,)
            parents = (relation.parent,) if isinstance(relation, SplitRelation) else relation.parents
            if running.intersection(children):
                running.update(parents)
            if clamped.intersection(children):
                clamped.update(parents)
            if isinstance(relation, SplitRelation) and relation.tail == "clamp" and relation.parent not in full_axes:
                clamped.update(parents if running.intersection(relation.children[:-1]) else ())
        return clamped

    def _nest(self, stage: Stage, domain: Domain) -> Nest:
        """Computes the loops over a domain: their extents from the schedule, then each axis in terms of them."""
        extents = {a.name: e for a, e in zip(stage.axes, domain.extent, strict=True)}
        extents |= {a.name: a.extent for a in stage.reduce_axes}
        for relation in stage.relations:
            if isinstance(relation, FuseRelation):
                extents[relation.child] = canon(product(extents[p] for p in relation.parents))
            else:
                self._split_extents(stage, relation, extents)
        for leaf in stage.leaves:  # from here on the simplifier knows their ranges
            self.ranges[loop_var(stage.name, leaf)] = extents[leaf]
        for relation in stage.relations:
            if isinstance(relation, SplitRelation) and relation.tail == "peel":
                self._range_of_peeled(stage, relation, extents)
        local = self._local(stage, extents, frozenset())
        spatial: list[Expr] = []
        reduced: list[Expr] = []
        for relation in reversed(stage.relations):
            if isinstance(relation, SplitRelation) and relation.tail == "guard":
                condition = self.simplify(local[relation.parent] < extents[relation.parent])
                (reduced if stage.is_reduce(relation.children[0]) else spatial).append(condition)
        local = {a.name: self.simplify(local[a.name]) for a in (*stage.axes, *stage.reduce_axes)}
        values = self._shift(stage, local, domain)
        return Nest(extents, values, local, tuple(spatial), tuple(reduced))

    def _range_of_peeled(self, stage: Stage, relation: SplitRelation, extents: dict[str, Expr]) -> None:
        """Extends the outer index's range by the peeled rest, where the index is one past the loop's last."""
        outer = relation.children[0]
        whole = extents[relation.parent]
        rest = self.simplify(
            whole % relation.factors[0] if is_sized(whole) else whole - extents[outer] * relation.factors[0]
        )
        if not (rest.is_const and rest.value == 0):
            self.ranges[loop_var(stage.name, outer)] = canon(extents[outer] + 1)
            self.simplify.forget()

    def _local(self, stage: Stage, extents: dict[str, Expr], full_axes: frozenset[str]) -> dict[str, Expr]:
        """Returns every axis and loop of `stage` in its innermost loop variables; those in `full_axes` stay
        variables."""
        local: dict[str, Expr] = {leaf: var(loop_var(stage.name, leaf)) for leaf in (*stage.leaves, *full_axes)}
        for relation in reversed(stage.relations):
            if isinstance(relation, FuseRelation):
                rest = local[relation.child]
                for parent in reversed(relation.parents[1:]):
                    local[parent] = rest % extents[parent]
                    rest = rest // extents[parent]
                local[relation.parents[0]] = rest
            elif relation.parent not in full_axes:
                local[relation.parent] = self._split_value(relation, local, extents)
        return local

    def _values(
        self, stage: Stage, extents: dict[str, Expr], domain: Domain, full_axes: frozenset[str]
    ) -> dict[str, Expr]:
        local = self._local(stage, extents, full_axes)
        for name in full_axes:
            self.ranges[loop_var(stage.name, name)] = extents[name]
        return self._shift(
            stage, {a.name: self.simplify(local[a.name]) for a in (*stage.axes, *stage.reduce_axes)}, domain
        )

    def _shift(self, stage: Stage, local: dict[str, Expr], domain: Domain) -> dict[str, Expr]:
        """Converts indices in the domain to indices in the tensor: reads use the latter, the own buffer the former."""
        low = {a.name: x for a, x in zip(stage.axes, domain.low, strict=True)}
        return {name: canon(value + low[name]) if name in low else value for name, value in local.items()}

    def _whole_parents(self, stage: Stage, loop_ranges: dict[str, Expr]) -> frozenset[str]:
        """Returns peeled or clamped parents whose loops all run: together these loops cover the parent exactly."""
        running = {leaf for leaf in stage.leaves if loop_var(stage.name, leaf) in loop_ranges}
        covered: set[str] = set()
        for relation in reversed(stage.relations):
            if isinstance(relation, FuseRelation):
                if relation.child in running:
                    running |= set(relation.parents)
            elif running.issuperset(relation.children):
                running.add(relation.parent)
                if relation.tail in ("peel", "clamp"):
                    covered.add(relation.parent)
        return frozenset(covered)

    def _split_extents(self, stage: Stage, relation: SplitRelation, extents: dict[str, Expr]) -> None:
        """Computes the extents of a split's loops; a condition of its tail fails here, or becomes a constraint."""
        extent, inner = extents[relation.parent], product(relation.factors)
        where = f"{stage.name}.{relation.parent}"
        if relation.tail in ("exact", "peel"):
            outer = self.simplify(extent // inner)
            if relation.tail == "exact":
                rest = self.simplify(extent % inner)
                if (rest.is_const and rest.value) or is_sized(rest):
                    raise ScheduleError(
                        f"`factor` must divide extent, but got factor={inner}, extent={extent} ({where})"
                    )
                if not rest.is_const:
                    self.constraints.append(Constraint(f"{where} is divided", rest, const(0)))
        else:
            outer = self.simplify(ceildiv(extent, inner))
        if relation.tail == "clamp":
            tile = relation.factors[-1]
            if tile.is_const and extent.is_const and tile.value > extent.value:
                raise ScheduleError(
                    f"`factor` must be at most extent where tail=clamp, but got factor={tile}, {extent=!s} ({where})"
                )
            if tile.is_const and is_sized(extent):
                if span(extent)[0] >= tile.value:
                    self.simplify.facts.append(poly(tile - extent))
                elif not self.simplify.at_most_zero(tile - extent):
                    sizes = ", ".join(f"{n} of {low} to {high}" for n, (low, high) in find_sizes([extent]).items())
                    raise ScheduleError(
                        f"`factor` must be at most extent for all sizes where tail=clamp, but got factor={tile}, "
                        f"{extent=!s} ({where}) with {sizes}"
                    )
            elif not (tile.is_const and extent.is_const):
                self.constraints.append(Constraint(f"{where} holds a tile", tile, extent))
                # Only legal candidates count, so this condition on the decisions may be used from here on: it proves
                # that `extent - tile`, where the last tile begins, is not negative.
                self.simplify.facts.append(poly(tile - extent))
            if tile.op == "var" and extent.is_const:
                self.simplify.limits[tile.args[0]] = extent.value
        extents[relation.children[0]] = outer
        extents.update(zip(relation.children[1:], relation.factors, strict=True))

    def _split_value(self, relation: SplitRelation, local: dict[str, Expr], extents: dict[str, Expr]) -> Expr:
        """Returns the index of a split loop in terms of the loops that it was split into.

        Under `clamp` only the start of the innermost tile is moved: one minimum per tile, outside of it. Indices within
        the tile are those of a full one, without predicate or mask.
        """
        value = local[relation.children[0]]
        for child, factor in zip(relation.children[1:-1], relation.factors[:-1], strict=True):
            value = value * factor + local[child]
        tile = relation.factors[-1]
        start = value * tile
        if relation.tail == "clamp":
            start = minimum(start, extents[relation.parent] - tile)
        return start + local[relation.children[-1]]
