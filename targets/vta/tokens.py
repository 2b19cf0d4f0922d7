"""Tokens between modules: the order in which they let a stream run, its end, and tokens that are left behind.

Every token queue has one giver and one taker, which take instructions in order. So the n-th token taken is the n-th one
given, whatever runs first, and the consequences of tokens can be read off the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from targets.vta.hardware import VtaHardware
from targets.vta.isa import COLUMN, FINISH, Table
from targets.vta.problems import Problem
from targets.vta.semantics import (
    COMPUTE_MODULE,
    LOAD_MODULE,
    MODULES,
    POPS,
    PUSHES,
    STORE_MODULE,
    TOKEN_QUEUES,
    Indices,
    column,
    modules,
    sram_elements,
)

POP_FLAGS, PUSH_FLAGS = ("pop_prev", "pop_next"), ("push_prev", "push_next")
REPLY = (1, 0, 3, 2)
"""The queue in which the taker of each queue gives tokens to its giver."""


@dataclass(frozen=True)
class _Queue:
    """A token queue: the module and the flag that give, and those that take."""

    giver: int
    push: str
    taker: int
    pop: str


def _ends(queues: tuple[tuple[int, int], ...], flags: tuple[str, str], queue: int) -> tuple[int, str]:
    return next((m, flags[of.index(queue)]) for m, of in enumerate(queues) if queue in of)


_QUEUES = tuple(_Queue(*_ends(PUSHES, PUSH_FLAGS, q), *_ends(POPS, POP_FLAGS, q)) for q in range(len(TOKEN_QUEUES)))


class _Traffic:
    """Instructions that give and take the tokens of each queue, by number, in order."""

    def __init__(self, table: Table) -> None:
        self.of = modules(table)
        self.gives = [self._with(table, queue.giver, queue.push) for queue in _QUEUES]
        self.takes = [self._with(table, queue.taker, queue.pop) for queue in _QUEUES]

    def _with(self, table: Table, module: int, flag: str) -> Indices:
        return np.flatnonzero((self.of == module) & (column(table, flag) != 0))

    @property
    def in_order(self) -> bool:
        """True if each token is given before it is taken in the order of the stream, so that this order can run."""
        return all(
            len(takes) <= len(gives) and bool((gives[: len(takes)] < takes).all())
            for gives, takes in zip(self.gives, self.takes, strict=True)
        )


def token_problems(table: Table, hardware: VtaHardware) -> list[Problem]:
    """Finds problems with the tokens of a stream whose instructions keep their rules by themselves.

    The stream must end, whatever is fast or slow, and FINISH must come after all else. No token may be left, which the
    next stream would take.
    """
    traffic = _Traffic(table)
    if not traffic.in_order:
        ran = execution_order(table)
        if len(ran) < len(table):
            return deadlock_problems(table, ran)
        if len(ran := execution_order(table, hardware.queue_depth)) < len(table):
            return [_full_queue(traffic, ran, hardware)]
    found = [*_find_lost(traffic, hardware), *_left(traffic), *_find_unfinished(table, traffic)]
    return sorted(found, key=lambda problem: problem.index)


def execution_order(table: Table, queue_depth: int | None = None) -> Indices:
    """Returns one order in which modules may run a stream: each as far as its tokens let it, load first, round by
    round.

    Args:
        queue_depth: instructions that the queue of each module holds; None: all.

    Returns:
        numbers of instructions, without the ones that wait for tokens for ever.
    """
    of = modules(table)
    queues, module_of = [np.flatnonzero(of == module).tolist() for module in range(len(MODULES))], of.tolist()
    flags = {name: column(table, name).tolist() for name in POP_FLAGS + PUSH_FLAGS}
    heads, tokens, queued, order, progress = [0, 0, 0], [0, 0, 0, 0], [0, 0, 0], [], True
    fetched = len(table) if queue_depth is None else 0
    while progress:
        progress = False
        while fetched < len(table) and queued[module_of[fetched]] < (queue_depth or 1):
            queued[module_of[fetched]] += 1
            fetched += 1
        for module, queue in enumerate(queues):
            while heads[module] < len(queue) and queue[heads[module]] < fetched:
                index = queue[heads[module]]
                need = [q for q, name in zip(POPS[module], POP_FLAGS, strict=True) if q >= 0 and flags[name][index]]
                if any(tokens[q] == 0 for q in need):
                    break
                for q in need:
                    tokens[q] -= 1
                for q, name in zip(PUSHES[module], PUSH_FLAGS, strict=True):
                    tokens[q] += q >= 0 and flags[name][index]
                order.append(index)
                heads[module] += 1
                queued[module] -= 1
                progress = True
    return np.array(order, np.int64)


def deadlock_problems(table: Table, ran: NDArray[np.int64]) -> list[Problem]:
    """Lists the modules that wait, and for which token, where `ran` are the instructions that could run."""
    of = modules(table)
    waits = np.ones(len(table), np.bool_)
    waits[ran] = False
    tokens = np.zeros(len(TOKEN_QUEUES), np.int64)
    for index in ran.tolist():
        for queues, flags, sign in ((POPS, POP_FLAGS, -1), (PUSHES, PUSH_FLAGS, 1)):
            for queue, flag in zip(queues[of[index]], flags, strict=True):
                tokens[queue] += sign * table[index, COLUMN[flag]] * (queue >= 0)
    problems = []
    for module, name in enumerate(MODULES):
        left = np.flatnonzero(waits & (of == module))
        if len(left):
            index = int(left[0])
            lacking = [
                f"`{flag}` ({TOKEN_QUEUES[queue]})"
                for queue, flag in zip(POPS[module], POP_FLAGS, strict=True)
                if queue >= 0 and table[index, COLUMN[flag]] and tokens[queue] <= 0
            ]
            message = f"the {name} module waits for ever for the token of {' and '.join(lacking)} (deadlock)"
            problems.append(Problem(index, message, endless=True))
    return sorted(problems, key=lambda problem: problem.index)


def _full_queue(traffic: _Traffic, ran: Indices, hardware: VtaHardware) -> Problem:
    """Describes which modules wait behind a full queue of instructions."""
    waits = np.ones(len(traffic.of), np.bool_)
    waits[ran] = False
    heads = [int(left[0]) for m in range(len(MODULES)) if len(left := np.flatnonzero(waits & (traffic.of == m)))]
    names = ", ".join(f"the {MODULES[traffic.of[index]]} module at instruction {index}" for index in heads)
    return Problem(
        min(heads),
        f"a queue of `queue_depth`={hardware.queue_depth} is full (deadlock): {names} wait for ever",
        endless=True,
    )


def _find_lost(traffic: _Traffic, hardware: VtaHardware) -> Iterator[Problem]:
    """Finds tokens that may be lost because their queue is full.

    A queue is fullest when the taker has done no more than the giver has waited for.
    """
    for number, name in enumerate(TOKEN_QUEUES):
        gives, takes, reply = traffic.gives[number], traffic.takes[number], REPLY[number]
        if len(gives) <= hardware.token_limit:
            continue
        # the giver has taken so many replies when it gives; the taker has taken so many tokens when it replies
        waited = np.searchsorted(traffic.takes[reply], gives, side="right")
        taken = np.append(0, np.searchsorted(takes, traffic.gives[reply], side="right"))[waited]
        there = np.arange(1, len(gives) + 1) - taken
        if there.max() > hardware.token_limit:
            index = int(gives[np.argmax(there > hardware.token_limit)])
            yield Problem(
                index,
                f"at most `token_limit`={hardware.token_limit} tokens may be there at once, or some are lost, but up "
                f"to {there.max()} are ({name})",
            )


def _left(traffic: _Traffic) -> Iterator[Problem]:
    """Finds tokens that are never taken."""
    for number, (queue, name) in enumerate(zip(_QUEUES, TOKEN_QUEUES, strict=True)):
        gives, takes = traffic.gives[number], traffic.takes[number]
        if len(gives) > len(takes):
            yield Problem(
                int(gives[len(takes)]),
                f"every token of `{queue.push}` ({name}) must be taken, or the next stream takes it, but got "
                f"{len(gives)} given and {len(takes)} taken",
            )


def _find_unfinished(table: Table, traffic: _Traffic) -> Iterator[Problem]:
    """Finds moves of other modules that FINISH, which tells the host that all is done, does not wait for."""
    end = len(table) - 1
    if end < 0 or table[end, 0] != FINISH:
        return
    moves = sram_elements(table) > 0
    for module, what in ((LOAD_MODULE, "LOAD"), (STORE_MODULE, "STORE")):
        moving = np.flatnonzero((traffic.of == module) & moves)
        if not len(moving):
            continue
        last = int(moving[-1])
        number = next(n for n, queue in enumerate(_QUEUES) if (queue.giver, queue.taker) == (module, COMPUTE_MODULE))
        # the first token given at or after the last move must be among those taken
        if np.searchsorted(traffic.gives[number], last) >= min(len(traffic.gives[number]), len(traffic.takes[number])):
            yield Problem(
                end,
                f"FINISH must wait for the last {what} of the {MODULES[module]} module, but no token leads from "
                f"instruction {last} to it",
            )
