"""Unrolled copies of long computations written side by side, an instruction of each in turn.

A function such as `exp` is a chain of a dozen instructions each of which waits for the one before, four cycles on most
processors. A processor looks a hundred instructions or so ahead, which are the chains of a few vectors; where these
stand one after another, the units that compute are idle for a third of the time. LLVM keeps the order that is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from search_space.ir.expr import walk
from search_space.ir.stmt import For, Seq, Stmt, Store, walk_stmt
from targets.cpu.storage import Storage

LONG = frozenset(("exp", "log", "sigmoid", "tanh", "erf"))
"""Functions that are chains of many instructions."""
AT_ONCE, AT_ONCE_OF_FEW = 4, 2
"""Copies that take turns where there are 32 vector registers, and where there are 16: each keeps three or four values
beside the constants that all of them need."""
_NAME = re.compile(r"%[\w.]+")
_BOUND = re.compile(r"^\S|^  br |sideeffect")


def copies_at_once(features: frozenset[str]) -> int:
    """How many copies take turns."""
    return AT_ONCE_OF_FEW if "avx" in features and "avx512f" not in features else AT_ONCE


def may_take_turns(loop: For, storage: Mapping[str, Storage]) -> bool:
    """Whether copies of a loop's body compute something long, and none reads from memory what another writes."""
    statements = [s for s in walk_stmt(loop) if not isinstance(s, Seq)]
    stores = [s for s in statements if isinstance(s, Store)]
    if len(stores) != 1 or any(not _is_written_out(s) for s in statements if s is not stores[0]):
        return False
    (store,) = stores
    nodes = list(walk(store.value))
    if not any(e.op == "call" and e.args[0] in LONG for e in nodes):
        return False
    if storage[store.buffer].kind == "register":
        return True
    return store.reducer is None and all(e.args[0] != store.buffer for e in nodes if e.op == "load")


def _is_written_out(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.kind in ("unroll", "vectorize")


def in_turns(lines: Sequence[Any], starts: Sequence[int], at_once: int) -> list[Any]:
    """The lines of some copies, of `at_once` of them an instruction each in turn.

    Args:
        lines: of all copies: text, or lists that are filled later and stay behind the line before them.
        starts: where each copy begins.
        at_once: copies that take turns.

    Returns:
        The same lines; as they were where they are no straight line of instructions.
    """
    if any(isinstance(line, str) and _BOUND.search(line) for line in lines):
        return list(lines)
    ends = [*starts[1:], len(lines)]
    copies = [_instructions(lines[start:end]) for start, end in zip(starts, ends, strict=True)]
    out = list(lines[: starts[0]])
    for first in range(0, len(copies), at_once):
        out += _merged(copies[first : first + at_once])
    return out


def _instructions(lines: Sequence[Any]) -> list[list[Any]]:
    """Each line with the lists behind it."""
    found: list[list[Any]] = []
    for line in lines:
        if isinstance(line, str) or not found:
            found.append([line])
        else:
            found[-1].append(line)
    return found


def _merged(copies: Sequence[list[list[Any]]]) -> list[Any]:
    """A copy that needs what another has not computed yet waits; the first never does."""
    pending = {_defined(one) for copy in copies for one in copy} - {None}
    places, out = [0] * len(copies), []
    while any(place < len(copy) for place, copy in zip(places, copies, strict=True)):
        for number, copy in enumerate(copies):
            if places[number] == len(copy):
                continue
            one = copy[places[number]]
            name = _defined(one)
            if any(used in pending for used in _used(one) if used != name):
                continue
            pending.discard(name)
            places[number] += 1
            out += one
    return out


def _defined(one: list[Any]) -> str | None:
    line = one[0]
    return line.strip().partition(" = ")[0] if isinstance(line, str) and " = " in line else None


def _used(one: list[Any]) -> list[str]:
    return _NAME.findall(one[0]) if isinstance(one[0], str) else []
