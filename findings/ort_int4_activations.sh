#!/usr/bin/env bash
# Guess: DequantizeLinear of int4 weights in front of MatMul quantises weights alone: activations stay float32.
# Case: ONNX Runtime fuses both, and by default rounds activations to int8, by blocks. An error of 1e-7 becomes 0.5 %,
# and one activation of 1000 costs its neighbours several units. `session.qdq_matmulnbits_accuracy_level` = 0 avoids
# it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0
"$folder/env/bin/python" - <<'EOF'
import numpy
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

print("onnxruntime", onnxruntime.__version__)
generator = numpy.random.default_rng(0)
depth, columns, block = 128, 64, 32
weights = generator.integers(-8, 8, (depth, columns))
scales = (generator.random((depth // block, columns)) * 0.1 + 0.01).astype(numpy.float32)
graph = helper.make_graph(
    [
        helper.make_node("DequantizeLinear", ["W", "S"], ["D"], axis=0, block_size=block),
        helper.make_node("MatMul", ["X", "D"], ["Y"]),
    ],
    "g",
    [helper.make_tensor_value_info("X", TensorProto.FLOAT, [4, depth])],
    [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [4, columns])],
    [
        helper.make_tensor("W", TensorProto.INT4, weights.shape, weights.ravel().tolist()),
        numpy_helper.from_array(scales, "S"),
    ],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
x = generator.standard_normal((4, depth)).astype(numpy.float32)
x[3, 0] = 1000
exact = x.astype(float) @ (weights * numpy.repeat(scales, block, 0).astype(float))


def errors(level=None):
    options = onnxruntime.SessionOptions()
    if level:
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", level)
    y = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, {"X": x})[0]
    return abs(y - exact)[:3].max() / abs(exact[:3]).max(), abs(y - exact)[3].max()


default, asked = errors(), errors("0")
print("default: relative error {:.1e}, error beside an activation of 1000 {:.3f}".format(*default))
print("accuracy level 0: relative error {:.1e}, error beside an activation of 1000 {:.1e}".format(*asked))
assert default[0] > 1e-3 and default[1] > 1 and asked[0] < 1e-6 and asked[1] < 0.01
EOF
