"""Convolutions of volumes as convolutions of planes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autotune.graph.ir import Graph, GraphBuilder, GraphError, TensorType
from autotune.graph.partition import partition
from autotune.graph.passes import optimise
from autotune.graph.passes.planes import planes
from tests.autotune.graph.random_graphs import assert_equal_outputs


def volume(
    kernel: tuple[int, int, int],
    extents: tuple[int, int, int] = (5, 6, 7),
    outputs: int = 16,
    groups: int = 1,
    batch: int = 2,
    **attrs: object,
) -> Graph:
    """A convolution of 4 channels with a bias, something added and a rectifier."""
    builder = GraphBuilder("volume", {"x": TensorType((batch, *extents, 4))})
    rng = np.random.default_rng(0)
    weight, bias = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((*kernel, 4 // groups, outputs), (outputs,))
    )
    value = builder.add("conv3d", ["x", builder.constant(weight)], groups=groups, **attrs)
    value = builder.add("add", [value, builder.constant(bias)])
    return builder.finish([builder.add("relu", [value])])


EXAMPLE = volume((1, 3, 3), padding=(0, 1, 1))


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


CASES = {
    "a plane": volume((1, 3, 3), padding=(0, 1, 1)),
    "a plane, every other": volume((1, 3, 3), padding=(0, 1, 1), stride=(2, 1, 1)),
    "a plane, every third of an even depth": volume((1, 5, 2), (4, 6, 7), stride=(3, 2, 1), dilation=(1, 1, 2)),
    "a plane of groups": volume((1, 3, 3), groups=2),
    "a pixel": volume((1, 1, 1)),
    "a pixel, every other plane": volume((1, 1, 1), stride=(2, 1, 1)),
    "a pixel, every other of everything": volume((1, 1, 1), stride=2),
    "depth alone": volume((3, 1, 1), padding=(1, 0, 0)),
    "depth alone, strided and dilated": volume((3, 1, 1), padding=(2, 0, 0), stride=(2, 1, 1), dilation=(2, 1, 1)),
    "depth alone, of groups": volume((3, 1, 1), groups=4),
    "all": volume((3, 3, 3), padding=1),
    "all, with another plane behind": volume((2, 3, 3), padding=((0, 1), (1, 1), (1, 1))),
    "all, strided in depth": volume((3, 3, 3), padding=1, stride=(2, 1, 1)),
    "all, dilated in depth": volume((3, 3, 3), padding=(2, 1, 1), dilation=(2, 1, 1)),
    "all of one plane": volume((3, 3, 3), (1, 6, 7), padding=1),
}


@pytest.mark.parametrize("name", CASES)
def test_a_volume_is_made_of_planes(name: str) -> None:
    graph = CASES[name]
    new = optimise(graph)
    assert "conv3d" not in ops(new) and "conv2d" in ops(new)
    assert_equal_outputs(new, graph)


STAY = {
    "few outputs": volume((3, 3, 3), padding=1, outputs=4),
    "strided": volume((3, 3, 3), padding=1, stride=(1, 2, 2)),
    "larger": volume((3, 5, 5), padding=2),
    "groups": volume((3, 3, 3), padding=1, groups=2),
}


@pytest.mark.parametrize("name", STAY)
def test_what_has_no_other_algorithm_stays(name: str) -> None:
    assert ops(planes(STAY[name])) == ops(STAY[name])


def test_a_plane_by_itself_ends_with_what_follows() -> None:
    kernels = [g for g in partition(optimise(volume((1, 3, 3), padding=(0, 1, 1)))) if g.workload is not None]
    assert [kernel.title for kernel in kernels] == ["conv2d+add+relu"]


def test_planes_that_are_stacked_have_winograd() -> None:
    kernels = [g for g in partition(optimise(volume((3, 3, 3), padding=1))) if g.workload is not None]
    (kernel,) = [k for k in kernels if k.title.startswith("conv2d")]
    assert kernel.workload is not None and "winograd4" in kernel.workload.algorithms


@given(
    kernel=st.tuples(*[st.integers(1, 3)] * 3),
    extents=st.tuples(*[st.integers(1, 5)] * 3),
    padding=st.tuples(*[st.tuples(st.integers(0, 2), st.integers(0, 2))] * 3),
    stride=st.tuples(*[st.integers(1, 3)] * 3),
    dilation=st.tuples(*[st.integers(1, 2)] * 3),
    groups=st.sampled_from([1, 2]),
)
def test_outputs_are_the_same(kernel: Any, extents: Any, groups: int, **attrs: Any) -> None:
    try:
        graph = volume(kernel, extents, groups=groups, batch=1, **attrs)
    except (GraphError, ValueError):
        assume(False)
    assert_equal_outputs(optimise(graph), graph)
