"""Tasks with features and a known truth, for what is learned of some to help another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from costmodel.transfer.tasks import SourceTask, concatenate_rows
from search_space import workloads
from search_space.hardware import Hardware
from search_space.workloads import Workload
from tests.costmodel.data import population

WIDE = Hardware("wide", 2, 64, 32, 1 << 15, 1 << 20, 1 << 25, 200e9, 40e9)
NARROW = Hardware("narrow", 2, 32, 16, 1 << 15, 1 << 19, 1 << 25, 100e9, 40e9)


@dataclass(eq=False)
class FakeTask:
    """A measured task with the members that methods and alignments read."""

    workload: Workload
    hardware: Hardware
    features: Sequence[np.ndarray]
    throughput: np.ndarray

    @property
    def sample(self) -> Sequence[np.ndarray]:
        return self.features

    @property
    def sample_rows(self) -> np.ndarray:
        return concatenate_rows(self.features)

    @property
    def key(self) -> str:
        return self.workload.key


def task(seed: int, size: int = 64, count: int = 120, hardware: Hardware = WIDE, shift: float = 0.0) -> SourceTask:
    """Programs of two statements; with `shift`, every feature is so much greater, and the truth is the same."""
    features, throughput = population(count, seed)
    workload = workloads.matmul(m=size, n=size, k=size)
    found = FakeTask(workload, hardware, [of + np.float32(shift) for of in features], throughput)
    return cast(SourceTask, found)
