"""Settings of the local pool."""

from __future__ import annotations

from dataclasses import dataclass, field

from measure.timing import TimingPolicy


@dataclass(frozen=True)
class LocalSettings:
    """Settings for measuring trials on this host.

    Attributes:
        builders: number of processes that build at a time; None: one per core.
        timing: rule for when to stop repeating a measurement.
        batch: most trials that are built before timing begins.
        prepare_timeout: seconds for making inputs and reference of a task, in addition to a trial's own time.
        start_timeout: seconds for a worker process to start.
        memory_bytes: most address space of a worker process; None: no limit.
        task_bytes: most memory for the inputs and references that the runner keeps.
        host_lock: file by which the runs on this host exclude each other; None: one file per user.
        executor: import path, "module:Class", of the code that builds and runs.
    """

    builders: int | None = None
    timing: TimingPolicy = field(default_factory=TimingPolicy)
    batch: int = 64
    prepare_timeout: float = 120.0
    start_timeout: float = 60.0
    memory_bytes: int | None = None
    task_bytes: int = 1 << 30
    host_lock: str | None = None
    executor: str = "measure.executor:KernelExecutor"

    def __post_init__(self) -> None:
        if self.builders is not None and self.builders < 1:
            raise ValueError(f"`builders` must be at least 1 or None, but got builders={self.builders}")
        for name in ("batch", "prepare_timeout", "start_timeout", "memory_bytes"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"`{name}` must be positive, but got {name}={value}")
