"""Images as words of four bytes: the bytes that a transposition, a rounding and a padding give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, GraphError, TensorType
from autotune.graph.passes import verify
from autotune.graph.quantise import with_image_words
from tests.autotune.graph.test_loops_compiled import make_executable


def padded_image(
    channels: int, sides: tuple[int, int, int, int], zero: int, op: str = "quantise_linear", **options: Any
) -> Graph:
    """An image (2, channels, 5, 19) as bytes, channels last and four, with `zero` around it."""
    b = GraphBuilder("image", {"x": TensorType((2, channels, 5, 19))})
    turned = b.add("transpose", ["x"], axes=(0, 2, 3, 1))
    numbers = [b.constant(np.full(1, a, dtype)) for a, dtype in ((0.03, np.float32), (zero, np.uint8))]
    rounded = b.add(op, [turned, *numbers], dtype="uint8")
    top, bottom, left, right = sides
    room = {"before": (0, top, left, 0), "after": (0, bottom, right, options.get("more", 4 - channels))}
    made = b.add("pad_with", [rounded, numbers[1]], **room) if zero else b.add("pad", [rounded], **room)
    return b.finish([made, rounded] if options.get("shown") else [made])


def image(graph: Graph, seed: int = 0) -> np.ndarray[Any, Any]:
    drawn = np.random.default_rng(seed).uniform(-5, 5, graph.inputs["x"].shape).astype(np.float32)
    drawn[..., 0], drawn[..., 1], drawn[..., 2] = np.float32(0.045), np.inf, -1e30  # a tie, and what is limited
    return drawn


@given(
    st.integers(1, 3),
    st.tuples(*[st.integers(0, 3)] * 4),
    st.integers(0, 255),
    st.sampled_from(["quantise", "quantise_linear"]),
    st.integers(0, 2**16),
)
@settings(max_examples=30, deadline=None)
def test_words_are_the_same_bytes(
    channels: int, sides: tuple[int, int, int, int], zero: int, op: str, seed: int
) -> None:
    graph = padded_image(channels, sides, zero, op)
    found = with_image_words(graph)
    verify(found)
    ops = [node.op for node in found.nodes]
    assert ops == ["image_words", "pad_with", "as_bytes"] if any(sides) else ["image_words", "as_bytes"]
    feeds = {"x": image(graph, seed)}
    ours, wanted = (evaluate(g, feeds)[g.outputs[0]] for g in (found, graph))
    assert ours.dtype == np.uint8
    np.testing.assert_array_equal(ours, wanted)


@pytest.mark.parametrize(("channels", "sides", "zero"), [(3, (3, 2, 1, 0), 200), (1, (0, 0, 0, 0), 0)])
def test_executables_give_the_same_bytes(
    channels: int, sides: tuple[int, int, int, int], zero: int, tmp_path: Path
) -> None:
    graph = padded_image(channels, sides, zero)
    x = image(graph)
    found = make_executable(with_image_words(graph), tmp_path)(x)
    np.testing.assert_array_equal(found, evaluate(graph, {"x": x})[graph.outputs[0]])


@pytest.mark.parametrize("options", [{"shown": True}, {"more": 2}])
def test_what_others_read_or_has_more_channels_stays(options: dict[str, Any]) -> None:
    graph = padded_image(3, (1, 1, 1, 1), 5, **options)
    assert [node.op for node in with_image_words(graph).nodes] == [node.op for node in graph.nodes]


def test_bad_input() -> None:
    b = GraphBuilder("bad", {"x": TensorType((1, 4, 5, 5)), "y": TensorType((1, 5, 5))})
    numbers = [b.constant(np.ones(1, dtype)) for dtype in (np.float32, np.uint8, np.int32)]
    with pytest.raises(GraphError, match=r"the image must be \(n, c, h, w\) of 1 to 3 channels, but got float32"):
        b.add("image_words", ["x", *numbers])
    with pytest.raises(GraphError, match="inputs must be an image, its scale, its zero and a word, of float32"):
        b.add("image_words", ["x", *numbers[:2]])
    with pytest.raises(GraphError, match="the input must be words of int32, but got float32"):
        b.add("as_bytes", ["y"])
