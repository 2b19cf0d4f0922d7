"""Endings of products in networks: part of the kernel that adds up, whether the product itself or its parts."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.config import Quantisation
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.partition import partition
from autotune.graph.quantise import quantise_with_report
from search_space import workloads
from search_space.hardware import Hardware
from search_space.lower.blocks import kernels
from search_space.space import Sketch, generate
from search_space.workloads import Workload
from targets.cuda.hardware import GPUS
from tests.autotune.graph.nets import conv, residual, weight
from tests.gpu.candidates import check, legal
from tests.gpu.machines import H200


def launches(sketch: Sketch) -> int:
    return len(list(kernels(sketch.program.body)))


def make_endings(batch: int) -> Graph:
    """Convolutions with a bias, a residual sum and a sigmoid, and a product, whose reductions are long."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("ended", {"x": TensorType((batch, 3, 5, 256)), "row": TensorType((batch, 1, 1, 256))})
    narrow = b.add("relu", [conv(b, rng, "x", 1, 12)])
    wide = b.add("relu", [b.add("add", [conv(b, rng, narrow, 3, 256, padding=1), "x"])])
    gate = b.add("sigmoid", [conv(b, rng, "row", 1, 8)])
    logits = b.add("matmul", [b.add("reshape", [wide], shape=(batch, 3840)), weight(b, rng, 3840, 5)])
    return b.finish([b.add("relu", [logits]), gate])


def products(graph: Graph) -> list[Workload]:
    """Workloads of a network that are a product and what is fused to it."""
    found = [g for g in partition(graph) if g.workload is not None and g.nodes[0].op in ("conv2d", "matmul")]
    return list({g.workload.key: g.workload for g in found if len(g.nodes) > 1 and g.workload is not None}.values())


@pytest.mark.parametrize("batch", [1, 2])
def test_endings_are_part_of_the_kernel_that_adds_up(batch: int) -> None:
    split = 0
    for number, workload in enumerate(products(make_endings(batch))):
        for i, sketch in enumerate(generate(workload, H200).sketches):
            parts = "split" in sketch.name
            assert launches(sketch) == (2 if parts else 1), sketch.name
            split += parts
            if (i + number) % 3 == 0:
                check(workload, sketch, legal(sketch, 1, seed=i)[0])
    assert split >= 4


def test_endings_of_quantised_products_too() -> None:
    quantised, _ = quantise_with_report(residual(), 0, Quantisation())
    for number, workload in enumerate(products(quantised.graph)):
        for i, sketch in enumerate(generate(workload, H200).sketches):
            assert launches(sketch) == (2 if "split" in sketch.name else 1), sketch.name
            if (i + number) % 3 == 0:
                check(workload, sketch, legal(sketch, 1, seed=i)[0])


@pytest.mark.parametrize(
    ("workload", "hardware"),
    [
        (workloads.matmul(m=16, n=8, k=576, dtype="int8"), H200),
        (workloads.matmul(m=64, n=64, k=320, dtype="float16", constant_b=False), GPUS["sm_90a"]),
    ],
    ids=["bytes", "warpgroups"],
)
def test_steps_divide_the_one_length_that_parts_may_have(workload: Workload, hardware: Hardware) -> None:
    """Past a part's end are the terms of the next one, which no tile may hold."""
    for i, sketch in enumerate(s for s in generate(workload, hardware).sketches if "split" in s.name):
        assert not any(".part" in column for column in sketch.columns)
        check(workload, sketch, legal(sketch, 1, seed=i)[0])
    assert i
