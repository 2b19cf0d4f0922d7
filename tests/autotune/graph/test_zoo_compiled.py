"""BERT tuned by nobody, compiled and held against ONNX Runtime along the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.compiler.checking.check import check_network
from autotune.compiler.prepare import load_network
from autotune.compiler.schedules import Schedules
from autotune.graph.frontends.onnx.importer import HANDLERS
from autotune.graph.frontends.onnx.model import with_shapes
from autotune.graph.ir import TensorType
from autotune.graph.ops import find
from autotune.graph.zoo import bert_base
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.autotune.fakes import settings_with
from tests.autotune.graph.test_zoo import BERT


@pytest.mark.parametrize("fused", [True, False])
def test_bert_compiled_agrees_with_onnx_runtime(fused: bool) -> None:
    network = load_network(with_shapes(bert_base.build(**BERT, fused_normalisation=fused)), "bert")
    assert any(task.name.startswith("gather") for task in network.tasks)
    assert sum(task.weight for task in network.tasks if task.name.startswith("layer_norm")) == 5
    settings = settings_with()
    check = check_network(network, Schedules(None, settings), settings)
    assert check.reference == "onnxruntime"
    assert check.max_error < 1e-5


SHAPE = (3, 37)
FLOATS, INTEGERS, TRUTH = TensorType(SHAPE), TensorType(SHAPE, "int32"), TensorType(SHAPE, "bool")
OPERATIONS: list[tuple[str, dict[str, Any], list[TensorType]]] = [
    ("equal", {}, [INTEGERS, INTEGERS]),
    ("less", {}, [FLOATS, FLOATS]),
    ("less_equal", {}, [INTEGERS, INTEGERS]),
    ("logical_and", {}, [TRUTH, TRUTH]),
    ("logical_or", {}, [TRUTH, TRUTH]),
    ("logical_xor", {}, [TRUTH, TRUTH]),
    ("logical_not", {}, [TRUTH]),
    ("where", {}, [TRUTH, FLOATS, FLOATS]),
    *((op, {}, [TensorType(SHAPE, t)] * 2) for op in ("floor_divide", "floor_mod") for t in ("int8", "int32", "int64")),
    ("bitwise_and", {}, [INTEGERS, INTEGERS]),
    ("left_shift", {}, [INTEGERS, INTEGERS]),
    ("right_shift", {}, [INTEGERS, INTEGERS]),
    *(("ranks", {"largest": largest}, [kind]) for largest in (True, False) for kind in (FLOATS, INTEGERS)),
    ("power", {}, [FLOATS, FLOATS]),
    ("cumsum", {"axis": 1}, [FLOATS]),
    ("cumsum", {"axis": 0, "reverse": True}, [FLOATS]),
    ("cumsum", {"axis": -1, "exclusive": True}, [TensorType((2, 3, 5), "int64")]),
    ("cumsum", {"axis": 0, "exclusive": True, "reverse": True}, [TensorType((19,), "int32")]),
    *(("cast", {"dtype": dtype}, [FLOATS]) for dtype in ("int32", "int64", "bool", "float16")),
    *(("cast", {"dtype": dtype}, [INTEGERS]) for dtype in ("float32", "int64", "bool")),
    *(("cast", {"dtype": dtype}, [TRUTH]) for dtype in ("float32", "int64", "int32")),
]


@pytest.mark.parametrize(("op", "attrs", "types"), OPERATIONS, ids=lambda value: str(value)[:40])
def test_operations_compiled_agree_with_numpy(op: str, attrs: dict[str, Any], types: list[TensorType]) -> None:
    operation, target, rng = find(op), registry.get("cpu"), np.random.default_rng(0)
    checked = operation.attributes(attrs, types)
    workload = Workload.of(operation.tensors(checked, types))
    arrays = [rng.integers(0 if t.dtype == "bool" else -2, 2, t.shape).astype(t.dtype) for t in types]
    arrays = [a + rng.uniform(0, 0.9, a.shape).astype(a.dtype) if a.dtype == np.float32 else a for a in arrays]
    if op == "power":
        arrays[1] = np.rint(arrays[1]) + np.float32(0)
    expected = operation.evaluate(checked, arrays)
    np.testing.assert_allclose(workload.reference(*arrays), expected, rtol=1e-6, atol=1e-6)
    sketch = generate(workload, target.hardware).sketches[0]
    rows = [rng.integers(len(g.table), size=50) for g in sketch.groups]
    choices = np.stack(rows, 1).astype(np.int32) if rows else np.zeros((1, 0), np.int32)
    choice = choices[sketch.legal(choices)][0]
    kernel = target.load(target.build(make_program(workload, sketch.algorithm, sketch.trace(choice))))
    found = kernel.bind(arrays).run()
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6 if op == "cumsum" else 0)


def test_every_operator_has_a_description() -> None:
    assert all((handler.__doc__ or "").strip().endswith((".", '."')) for handler in HANDLERS.values())
