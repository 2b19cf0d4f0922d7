"""Memory that compiling a model takes, beside its weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

MEGABYTE = 1 << 20
WIDTH, LAYERS = 2048, 8
COMPILE = """
import sys
import autotune
network = autotune.compile(sys.argv[1], threads=1)
lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(lines["VmHWM"].split()[0]) >> 10)
"""


def write_products(path: Path, separate: bool) -> int:
    """Writes a model of products in a row; returns the megabytes of its weights."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((WIDTH, WIDTH), np.float32) for _ in range(LAYERS)]
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(LAYERS)]
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, WIDTH]) for name in ("x0", f"x{LAYERS}")]
    tensors = [numpy_helper.from_array(array, f"w{i}") for i, array in enumerate(weights)]
    graph = helper.make_graph(nodes, "products", kinds[:1], kinds[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path, save_as_external_data=separate, location="weights" if separate else None)
    return sum(array.nbytes for array in weights) // MEGABYTE


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize("separate", [False, True])
def test_compiling_takes_at_most_twice_the_weights_and_300_mb(separate: bool, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE", "none")
    size = write_products(tmp_path / "m.onnx", separate)
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(tmp_path / "m.onnx")], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) <= 2 * size + 300, (done.stdout, size)
