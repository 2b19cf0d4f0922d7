#!/usr/bin/env bash
# Guess: Sigmoid in float32 has a relative error of some ulp, so its logarithm is right down to -87.
# Case: ONNX Runtime on CPUs returns exactly 0 at -20, and at -10 it is off by 0.02 %. The error is small only beside
# 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0
"$folder/env/bin/python" - <<'EOF'
import numpy
import onnx.parser
import onnxruntime

print("onnxruntime", onnxruntime.__version__)
model = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21]> g (float[16] X) => (float[16] S, float[16] L)'
    " { S = Sigmoid(X) L = Log(S) }"
)
x = numpy.repeat(numpy.array([-10, -16, -20, -50], numpy.float32), 4)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
sigmoid, logarithm = (array[::4].astype(float) for array in session.run(None, {"X": x}))
exact = 1 / (1 + numpy.exp(-x[::4].astype(float)))
for row in zip(x[::4], sigmoid, exact, logarithm):
    print("x = {:.0f}: sigmoid {:.6e}, exact {:.6e}, logarithm {:.6f}".format(*row))
assert 1e-5 < abs(sigmoid[0] / exact[0] - 1) < 1e-2
assert sigmoid[2] == 0 and sigmoid[3] == 0 and numpy.isneginf(logarithm[2:]).all()
EOF
