"""Latency against memory: which measured schedules no other one beats in both."""

from __future__ import annotations

import numpy as np

from autotune.result import TuneResult
from measure.record import Record
from search_space.lower.memories import workspace_bytes
from search_space.schedule.trace import Trace
from search_space.space import program_of


def memory_front(result: TuneResult) -> list[tuple[Record, int]]:
    """Records that no other beats in both latency and memory, fastest first, and the bytes of each.

    Memory is what `Sketch.workspace` counts, with as many threads as were tuned for. Each program is lowered, which
    takes some 20 ms; faster is `Nsga2.front` of a strategy that is at hand.
    """
    records = sorted((record for record in result.records if record.ok), key=lambda record: record.seconds)
    front: list[tuple[Record, int]] = []
    least = np.inf
    for record in records:
        program = program_of(result.workload, record.algorithm, Trace.from_json(record.trial.trace))
        size = int(workspace_bytes(program, result.threads).value)
        if size < least:
            front.append((record, size))
            least = size
    return front
