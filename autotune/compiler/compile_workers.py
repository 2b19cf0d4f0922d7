"""Processes that choose schedules and build kernels in parallel; an idle process takes the next request."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import wait
from typing import Any

from measure.child import Child
from measure.host import allowed_cores

Answer = tuple[dict[str, Any], bytes]


class CompileWorkers:
    """Processes that answer requests, one per core.

    Args:
        options: options that all requests share, see `Child`.
        program: module whose `main` answers: one message for each request, in the order in which it gets them.
        most: largest number of processes.
    """

    def __init__(self, options: Mapping[str, Any], program: str, most: int) -> None:
        count = min(len(allowed_cores()), most)
        self._children: list[Child] = []
        try:
            for _ in range(count):
                self._children.append(Child({**options, "parent": os.getpid()}, program))
        except BaseException:
            self.close()
            raise

    def ask(self, requests: Sequence[Mapping[str, Any]], ahead: int = 1) -> Iterator[Answer]:
        """Lists the answers to requests, in the order of the requests, each as soon as it is there.

        Processes work on their requests even while the caller does not ask for the next answer. One call must end
        before the next begins; one that is abandoned, as by Ctrl-C, ends the processes, as their answers would be taken
        for those to other requests.

        Args:
            ahead: number of requests that a process has at once: with 2 it goes on while its answer waits to be read.

        Raises:
            RuntimeError: a process has ended, or all have after a call that was abandoned.
        """
        if not self._children:
            raise RuntimeError("processes that choose schedules must be open to be asked, but they have ended")
        todo = deque(range(len(requests)))
        answers: dict[int, Answer] = {}
        assigned: dict[int, tuple[Child, deque[int]]] = {
            child.channel.fileno(): (child, deque()) for child in self._children
        }

        def give() -> None:
            for _ in range(ahead):  # each process gets its first request before any gets a second one
                for child, numbers in assigned.values():
                    if todo and len(numbers) < ahead:
                        child.send(requests[todo[0]])
                        numbers.append(todo.popleft())

        def take(timeout: float | None) -> None:
            ready = wait([number for number, (_, numbers) in assigned.items() if numbers], timeout)
            for number, (child, numbers) in assigned.items():
                if number in ready:
                    answers[numbers.popleft()] = _receive(child)

        try:
            give()
            for number in range(len(requests)):
                take(0.0)
                while number not in answers:
                    take(None)
                    give()
                give()
                yield answers.pop(number)
        finally:
            if any(numbers for _, numbers in assigned.values()):
                self.close()

    def close(self) -> None:
        """Ends the processes."""
        while self._children:
            self._children.pop().close()


def _receive(child: Child) -> Answer:
    message = child.receive()
    if message is None:
        _, death = child.death()
        raise RuntimeError(f"a process that chooses schedules must stay alive, but it {death.how}")
    return message
