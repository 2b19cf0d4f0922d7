"""The cost model `attention` computed by our own kernels: the platform compiles its own cost model.

`autotune costmodel study --models autotune.lab.compiled_attention:CompiledAttention,attention` holds it against that by
NumPy. It learns, saves and reads like that one; scores differ in the sixth digit, as sums have another order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.api import compile as compile_network
from costmodel.features import SECONDS
from costmodel.models.attention import BLOCK, CLIP, HEADS, AttentionModel
from costmodel.models.base import Scores, need_fit
from targets.executable import Executable

if TYPE_CHECKING:
    import onnx


class CompiledAttention(AttentionModel):
    """`AttentionModel` whose scores are computed by an executable for each number of statements, on one thread.

    It is made with the options of that; each number of statements takes a few seconds to compile, once.
    """

    _of: Mapping[str, Any] | None = None
    """Learned state that the networks were compiled from."""

    def predict(self, features: NDArray[np.float32]) -> Scores:
        learned = need_fit(self._state)
        if self._of is not learned:  # fitted or loaded anew
            self._of, self._networks = learned, dict[int, Executable]()  # by the number of statements
        count, statements = features.shape[:2]
        if statements not in self._networks:
            self._networks[statements] = compile_network(build_model(learned, statements), threads=1)
        network = self._networks[statements]
        scores = np.empty(-(-count // BLOCK) * BLOCK)
        for start in range(0, count, BLOCK):
            block = features[start : start + BLOCK]
            if len(block) < BLOCK:
                block = np.concatenate([block, np.zeros((BLOCK - len(block), *block.shape[1:]), np.float32)])
            scores[start : start + BLOCK] = network(np.ascontiguousarray(block, np.float32))
        return scores[:count]


def build_model(arrays: Mapping[str, Any], statements: int, programs: int = BLOCK) -> onnx.ModelProto:
    """Builds the network as ONNX: features (programs, statements, features) → scores (programs,).

    Args:
        arrays: arrays that an `AttentionModel` has learned: means, scales, weights and biases by name.
        statements: statements of each program.
        programs: programs scored at a time.
    """
    from onnx import TensorProto, helper, numpy_helper

    features, hidden = arrays["first.weight"].shape
    width = hidden // HEADS
    nodes: list[Any] = []
    fixed: dict[str, NDArray[Any]] = {}

    def add(kind: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, list(inputs), [f"v{len(nodes)}"], **attributes))
        return f"v{len(nodes) - 1}"

    def constant(name: str, value: Any, dtype: Any = np.float32) -> str:
        fixed[name] = np.asarray(value, dtype)
        return name

    def layer(name: str, x: str) -> str:
        weight, bias = (constant(f"{name}.{part}", arrays[f"{name}.{part}"]) for part in ("weight", "bias"))
        return add("Add", add("MatMul", x, weight), bias)

    def heads(name: str, x: str, order: tuple[int, ...]) -> str:
        shape = constant("heads", (programs, statements, HEADS, width), np.int64)
        return add("Transpose", add("Reshape", layer(name, x), shape), perm=order)

    centred = add("Mul", add("Sub", "features", constant("mean", arrays["mean"])), constant("scale", arrays["scale"]))
    rows = constant("rows", (programs * statements, features), np.int64)
    x = add("Reshape", add("Clip", centred, constant("low", -CLIP), constant("high", CLIP)), rows)
    x = add("Relu", layer("second", add("Relu", layer("first", x))))
    query, value = heads("query", x, (0, 2, 1, 3)), heads("value", x, (0, 2, 1, 3))
    product = add("MatMul", query, heads("key", x, (0, 2, 3, 1)))
    weights = add("Softmax", add("Mul", product, constant("root", width**-0.5)), axis=-1)
    mixed = add("Transpose", add("MatMul", weights, value), perm=(0, 2, 1, 3))
    mixed = add("Reshape", mixed, constant("hidden", (programs * statements, hidden), np.int64))
    x = layer("last", add("Relu", layer("third", add("Add", x, layer("mixed", mixed)))))
    axis = constant("axis", [1], np.int64)
    shape = constant("statements", (programs, statements), np.int64)
    missing = add("ReduceSum", add("Reshape", x, shape), axis, keepdims=0)
    ends = [constant(n, v, np.int64) for n, v in (("from", (0, SECONDS)), ("to", (1, SECONDS + 1)), ("axes", (1, 2)))]
    estimate = add("Reshape", add("Slice", "features", *ends), constant("programs", [programs], np.int64))
    nodes.append(helper.make_node("Sub", [missing, estimate], ["scores"]))
    graph = helper.make_graph(
        nodes,
        "attention",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, (programs, statements, features))],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, (programs,))],
        [numpy_helper.from_array(array, name) for name, array in fixed.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
