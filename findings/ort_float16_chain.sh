#!/usr/bin/env bash
# Guess: each node of a float16 model rounds its result to float16, at least with all graph optimizations off.
# Case: ONNX Runtime's CPU provider computes chains of float16 nodes in float32, and rounds at the end. 60000 + 60000
# - 60000 is 60000 instead of infinity, at every level of optimization.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0
"$folder/env/bin/python" - <<'EOF'
import numpy
import onnx.parser
import onnxruntime
from onnx.reference import ReferenceEvaluator

print("onnxruntime", onnxruntime.__version__)
model = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21]> g (float16[4] X) => (float16[4] Y) { Z = Add(X, X) Y = Sub(Z, X) }'
)
x = numpy.full(4, 60000, numpy.float16)
for level in (onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    y = session.run(None, {"X": x})[0]
    print(level, y.dtype, y)
    assert y.dtype == numpy.float16 and (y == 60000).all()
with numpy.errstate(over="ignore"):
    reference = ReferenceEvaluator(model).run(None, {"X": x})[0]
print("onnx.reference", reference)
assert numpy.isinf(reference).all()
EOF
