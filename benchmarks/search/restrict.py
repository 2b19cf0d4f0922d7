"""Restrictions of search spaces: some of the sketches, and some rows of each decision group's table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.decisions import every_choice
from search_space.sketch.tables import DecisionGroup
from search_space.space import SearchSpace, Sketch

MOST = 1 << 22
"""Candidates of a sketch, legal or not, that `legal_rows` goes through at most."""

Rows = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Restriction:
    """Restriction of a search space, as plain data, stored with every table.

    Attributes:
        sketches: names of those kept, with the rows kept of their decision groups, by the group's name; groups that
            are not named stay whole.
        pruned: whether the limits hold that keep hopeless candidates out, such as the number of vector registers.
            Limits without which a candidate would be wrong, or too large for a memory, always hold.
    """

    sketches: Mapping[str, Mapping[str, Rows]]
    pruned: bool = True

    def apply(self, space: SearchSpace) -> SearchSpace:
        """Restricts a space; sketches and rows keep their order.

        Raises:
            ValueError: a sketch, a group or a row that the space does not have.
        """
        known = {sketch.name: sketch for sketch in space.sketches}
        for name in self.sketches:
            if name not in known:
                raise ValueError(f"`sketches` must be of {', '.join(known)}, but got {name!r}")
        kept = [self._cut(sketch) for sketch in space.sketches if sketch.name in self.sketches]
        return SearchSpace(space.workload, space.hardware, tuple(kept))

    def _cut(self, sketch: Sketch) -> Sketch:
        tables = self.sketches[sketch.name]
        for name in tables:
            if name not in {group.name for group in sketch.groups}:
                raise ValueError(f"`groups` must be of sketch {sketch.name}, but got {name!r}")
        groups = tuple(_only(group, tables[group.name]) if group.name in tables else group for group in sketch.groups)
        limits = sketch.limits if self.pruned else ()
        return replace(sketch, groups=groups, limits=limits, _cache={})

    def to_json(self) -> dict[str, Any]:
        """Converts it to plain data; `from_json` makes an equal restriction of it."""
        sketches = {
            name: {group: [list(row) for row in rows] for group, rows in groups.items()}
            for name, groups in self.sketches.items()
        }
        return {"sketches": sketches, "pruned": self.pruned}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Restriction:
        """Makes a restriction from its plain data."""
        sketches = {
            name: {group: tuple(tuple(row) for row in rows) for group, rows in groups.items()}
            for name, groups in data["sketches"].items()
        }
        return Restriction(sketches, data["pruned"])


def thin(
    space: SearchSpace,
    sketches: Sequence[str] | None = None,
    most: Mapping[str, int] | None = None,
    pruned: bool = True,
) -> Restriction:
    """Makes a restriction by sizes.

    Args:
        space: the whole space.
        sketches: names of those kept; all by default.
        most: decision group -> rows kept at most, evenly spaced in its table, the first and the last among them.
        pruned: see `Restriction`.

    Raises:
        ValueError: a group that no sketch has.
    """
    most = most or {}
    groups = dict.fromkeys(group.name for sketch in space.sketches for group in sketch.groups)
    for name in most:
        if name not in groups:
            raise ValueError(f"`most` must be of the groups {', '.join(groups)}, but got {name!r}")
    names = [sketch.name for sketch in space.sketches] if sketches is None else list(sketches)
    rows_of_groups: dict[str, dict[str, Rows]] = {name: {} for name in names}
    for sketch in space.sketches:
        if sketch.name not in rows_of_groups:
            continue
        for group in sketch.groups:
            if len(group.table) > most.get(group.name, len(group.table)):
                places = np.unique(np.linspace(0, len(group.table) - 1, most[group.name]).round().astype(int))
                rows_of_groups[sketch.name][group.name] = tuple(tuple(map(int, row)) for row in group.table[places])
    return Restriction(rows_of_groups, pruned)


def legal_rows(sketch: Sketch) -> NDArray[np.int32]:
    """Lists every legal candidate of a sketch, in the order of its tables: (legal, groups).

    Raises:
        ValueError: the sketch is too large to be gone through.
    """
    if sketch.size > MOST:
        raise ValueError(f"`sketch` must have at most {MOST} candidates, but got {sketch.name} of {sketch.size}")
    return np.concatenate([rows[sketch.legal(rows)] for rows in every_choice(sketch)])


def digest(space: SearchSpace) -> str:
    """Computes a digest of a table's basis: the workload, and each sketch's schedule, tables and legal candidates."""
    parts: list[Any] = [space.workload.key]
    for sketch in space.sketches:
        groups = [[group.name, group.columns, group.table.tolist()] for group in sketch.groups]
        legal = hashlib.sha256(legal_rows(sketch).tobytes()).hexdigest()
        parts.append([sketch.name, sketch.algorithm, str(sketch.steps), groups, legal])
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()[:32]


def _only(group: DecisionGroup, rows: Rows) -> DecisionGroup:
    indices = {tuple(map(int, row)): place for place, row in enumerate(group.table)}
    for row in rows:
        if row not in indices:
            raise ValueError(f"`rows` must be of the table of {group.name}, but got {row}")
    return DecisionGroup(group.name, group.columns, group.table[sorted(indices[row] for row in rows)])
