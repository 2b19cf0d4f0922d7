"""Templates for GPUs keep the limits that sketch rules keep: threads of a block, bytes of shared memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from search_space import te
from search_space.hardware import GpuLimits
from search_space.space import make_program
from search_space.template import template
from search_space.template.registry import TEMPLATES
from targets.base import BuildError
from targets.cuda.kernels import device_program
from tests.gpu.machines import H200

SMALL = replace(H200, gpu=GpuLimits(threads_block=32, shared_block=512))
"""Limits that small kernels break, as what holds large ones against them takes its time."""


def blocks(cfg, n, buffers):
    """A product by blocks of threads, whose tiles of both sides lie in shared memory."""
    a, b = te.placeholder((n, 32), name="A"), te.placeholder((32, n), name="B")
    r = te.reduce_axis((0, 32), "r")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    i, j = s[c].op.axis
    cfg.define_split("i", i, 2, "power2", tail="guard", max_factor=16)
    cfg.define_split("j", j, 2, "power2", tail="guard", max_factor=16)
    cfg.define_knob("step", [1, 8, 32])
    i0, i1 = cfg["i"].apply(s, c, i)
    j0, j1 = cfg["j"].apply(s, c, j)
    r0, r1 = s[c].split(r, factor=cfg["step"].var, tail="guard")
    s[c].reorder(i0, j0, i1, j1, r0, r1)
    for loop, tag in ((i0, "blockIdx.y"), (j0, "blockIdx.x"), (i1, "threadIdx.y"), (j1, "threadIdx.x")):
        s[c].bind(loop, te.thread_axis(tag))
    if buffers:
        copy = s.cache_read(a, "shared", c)
        s[copy].compute_at(s[c], r0)
    return s, [a, b, c]


@pytest.fixture(params=[False, True], ids=["registers", "shared"])
def space(request):
    made = template("test.blocks")(blocks)
    try:
        yield made(16, request.param).space(SMALL)
    finally:
        del TEMPLATES["test.blocks"]


def test_candidates_keep_the_limits_of_a_block_and_others_are_counted(space):
    (sketch,) = space.sketches
    assert sketch.hardware.gpu is SMALL.gpu
    rng = np.random.default_rng(0)
    choices = np.stack([rng.integers(len(g.table), size=600) for g in sketch.groups], axis=1).astype(np.int32)
    legal = sketch.legal(choices)
    values = [sketch.values(choice) for choice in choices]
    fits = [_threads(v) <= 32 and _shared(sketch, v) <= 512 for v in values]
    assert legal.tolist() == fits and 0 < legal.sum() < len(legal)
    assert "threads of a block" in sketch.violations(choices)
    assert ("shared memory" in sketch.violations(choices)) == _has_shared(sketch)


def _threads(values):
    return values["i:1"] * values["j:1"]


def _has_shared(sketch):
    return any(stage.scope == "shared" for stage in sketch.steps.apply(sketch.initial).stages)


def _shared(sketch, values):
    """Bytes of the tile: rows of the block's threads times the step."""
    return 4 * values["i:1"] * values["step"] if _has_shared(sketch) else 0


def test_what_is_refused_as_illegal_is_what_the_target_refuses(space):
    (sketch,) = space.sketches
    rng = np.random.default_rng(1)
    rows = np.stack([rng.integers(len(g.table), size=200) for g in sketch.groups], axis=1).astype(np.int32)
    legal = sketch.legal(rows)
    for choice, keeps in [*((row, True) for row in rows[legal][:2]), *((row, False) for row in rows[~legal][:3])]:
        program = make_program(space.workload, sketch.algorithm, sketch.trace(choice))
        try:
            device_program(program, SMALL.gpu)
            assert keeps
        except BuildError as error:
            assert not keeps and (
                "threads of a block must" in str(error) or "shared memory of a block" in str(error)
            ), error
