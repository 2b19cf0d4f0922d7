"""Construction of a zoo network, saved as ONNX, and computed once in NumPy.

python examples/models/build_and_save.py bert.onnx
"""

from __future__ import annotations

import sys

import numpy as np
import onnx

from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.importer import import_model
from autotune.graph.frontends.onnx.model import load_model
from autotune.graph.passes import optimise
from autotune.graph.zoo import bert_base


def main(path: str) -> None:
    """Writes the model to `path`."""
    onnx.save(bert_base.build(seed=0, layers=2, hidden=64, heads=4, sequence=16, vocabulary=1000), path)
    graph = optimise(import_model(load_model(path)))
    tokens = np.random.default_rng(0).integers(0, 1000, graph.inputs["tokens"].shape)
    (output,) = graph.outputs
    print(f"{path}: {len(graph.nodes)} operations, output {evaluate(graph, {'tokens': tokens})[output].shape}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(sys.argv[1])
