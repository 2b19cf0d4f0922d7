"""A worker process that times, for a thread that waits for its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from measure.child import Child, ChildError
from measure.closing import Closing
from measure.errors import PoolError
from measure.host import cores_for
from measure.settings import LocalSettings


class TimingProcess(Closing):
    """A process of `measure.worker` on the cores for some threads, started on demand, again after its death.

    Args:
        role: see `measure.worker`.
        threads: number of threads that kernels run on.
        settings: executor, time-outs, memory.
    """

    def __init__(self, role: Literal["run", "interleaved"], threads: int, settings: LocalSettings) -> None:
        self._settings = settings
        self._options = {
            "role": role,
            "executor": settings.executor,
            "memory_bytes": None,
            "task_bytes": settings.task_bytes,
            "cores": cores_for(threads),
        }
        self._child: Child | None = None

    def ask(self, request: Mapping[str, Any], blob: bytes, limit: float) -> dict[str, Any]:
        """Sends a request and returns the header of the answer; asks once more if the process was killed from outside.

        Args:
            request: see `measure.worker`.
            blob: bytes of the request.
            limit: seconds from each of its "prepared" messages to the next, and to the answer.

        Raises:
            ChildError: the process died, or took too long; the next request gets a fresh one.
            PoolError: the process cannot be started.
        """
        try:
            return self._ask(request, blob, limit)
        except ChildError as error:
            if not error.death.outside:
                raise
            return self._ask(request, blob, limit)

    def close(self) -> None:
        """Ends the process; may be called twice."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def _ask(self, request: Mapping[str, Any], blob: bytes, limit: float) -> dict[str, Any]:
        child, prepare = self._get_child(), self._settings.prepare_timeout
        try:
            header, _ = child.ask({**request, "prepare_timeout": prepare, "timeout": limit}, blob, prepare)
            while header["stage"] == "prepared":
                header, _ = child.next_answer(limit)
        except BaseException:
            self.close()
            raise
        return header

    def _get_child(self) -> Child:
        if self._child is None:
            self._child = Child(self._options)
            try:
                self._child.next_answer(self._settings.start_timeout)
            except ChildError as error:
                self.close()
                raise PoolError(f"a process that times must come up, but it {error.death.how}") from None
        return self._child
