"""An element-wise ending of any length is computed on the register tile: no second pass over the output."""

from __future__ import annotations

import pytest

from search_space import workloads
from search_space.ir.stmt import For, Store, walk_stmt
from search_space.space import generate
from search_space.workloads import Workload
from targets import registry
from tests.search_space.operators.cases import append_ending

ANCHORS = {
    "conv2d": workloads.conv2d(height=8, width=8, in_channels=16, out_channels=32, padding=1),
    "depthwise": workloads.depthwise_conv2d(height=8, width=8, channels=32, padding=1),
    "dense": workloads.dense(16, 32, 32),
    "pool": workloads.max_pool2d(height=8, width=8, channels=32),
}


@pytest.mark.parametrize(("name", "algorithm"), [*((name, "direct") for name in ANCHORS), ("conv2d", "im2col")])
def test_an_algorithm_has_one_parallel_pass(name: str, algorithm: str) -> None:
    workload: Workload = append_ending(ANCHORS[name])
    space = generate(workload, registry.get("cpu").hardware, [algorithm])
    plain = [s for s in space.sketches if "pad_root" not in s.name]
    assert plain
    for sketch in plain:
        loops = [s for s in walk_stmt(sketch.program.body) if isinstance(s, For) and s.kind == "parallel"]
        assert len(loops) == 1, sketch.name
        stores = [s for s in walk_stmt(loops[0]) if isinstance(s, Store) and s.buffer == sketch.program.outputs[0]]
        assert len(stores) == 1, sketch.name
