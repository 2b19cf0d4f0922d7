"""A task of the simulated VTA whose whole table takes a second."""

from __future__ import annotations

from benchmarks.search.tasks import SearchTask
from search_space import workloads


def workload():
    return workloads.conv2d_blocked(6, 6, 32, 64, kernel=1, relu=True)


TINY = SearchTask("tiny", "tiny", "VTA 1x1 6² 32→64", workload, target="vta", most={"out.w": 3})
