"""A task of the simulated VTA whose whole table takes a second."""

from __future__ import annotations

from benchmarks.search.tasks import SearchTask
from search_space import workloads


def workload():
    return workloads.conv2d_blocked(4, 4, 32, 64, kernel=1, relu=True)


ENDS = (":k.0>h.0>w.0", ":k.0>h.0>w.0/resident")
TINY = SearchTask("tiny", "tiny", "VTA 1x1 4² 32→64", workload, target="vta", sketches=ENDS, most={"out.w": 2})
