"""Cases of the device tests, one a sketch: what hangs or faults then costs no other its turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from search_space.space import generate
from search_space.workloads import Workload
from targets.cuda.hardware import GPUS


def sketches(workloads: Sequence[Workload], arch: str) -> list[Any]:
    """Each workload with the number of each of its sketches, as parameters of a test; none of an unknown `arch`."""
    if arch not in GPUS:
        return []
    return [
        pytest.param(workload, place, id=f"{workload}-{sketch.name}")
        for workload in workloads
        for place, sketch in enumerate(generate(workload, GPUS[arch]).sketches)
    ]
