"""Many samples of an image at once: the definition in NumPy and the import, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.frontends.onnx.nodes import run_node
from tests.autotune.graph.onnx_models import assert_close, evaluate_import, make_model, runtime


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_samples_for_the_attention_of_a_detector(mode: str, padding: str) -> None:
    """300 queries with 8 heads of 32 channels."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 32, 14, 14)).astype(np.float32)
    grid = rng.uniform(-1.3, 1.3, (8, 300, 4, 2)).astype(np.float32)
    model = make_model("GridSample", {"x": x, "grid": grid}, opset=20, mode=mode, padding_mode=padding)
    wanted = runtime(model, {"x": x, "grid": grid})
    assert_close(list(run_node(model.graph.node[0], {"x": x, "grid": grid}, 20).values()), wanted, 1e-5, 1.0)
    assert_close(evaluate_import(model, {"x": x, "grid": grid}), wanted, 1e-5, 1.0)
