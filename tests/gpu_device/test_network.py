"""Tests on a GPU: networks compute the reference, again and again, and their times make sense."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.compiler.executable.compile import Compiler
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph
from targets.cuda.driver import missing_device
from targets.cuda.target import CudaTarget
from tests.autotune.graph.nets import branches, feeds, residual
from tests.gpu.candidates import make_chooser

if missing_device():
    pytest.skip(f"no gpu: {missing_device()}", allow_module_level=True)


@pytest.mark.parametrize("graph", [branches(1), branches(2), residual()], ids=["one", "two", "residual"])
def test_outputs_are_the_graphs(graph: Graph, tmp_path: Path) -> None:
    from targets.cuda.device import first_device

    target = CudaTarget(first_device().arch)
    for seed in range(3):
        folder = tmp_path / str(seed)
        Compiler(graph, make_chooser(target.hardware, seed), f"cuda:{target.arch}").write(folder)
        network = autotune.load(folder)
        for given in (feeds(graph, 0), feeds(graph, 1), feeds(graph, 0)):
            found, values = network(given["x"]), evaluate(graph, given)
            arrays = found if isinstance(found, tuple) else (found,)
            for array, name in zip(arrays, graph.outputs, strict=True):
                np.testing.assert_allclose(array, values[name], rtol=1e-4, atol=1e-5)
