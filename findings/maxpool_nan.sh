#!/usr/bin/env bash
# Guess: MaxPool of a window that is all NaN is NaN, as in PyTorch.
# Case: ONNX Runtime and OpenVINO both return the lowest finite float32, -3.4e38, and ignore a NaN beside a number.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile \
    numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0 openvino==2026.4.1
"$folder/env/bin/python" - <<'EOF'
import numpy
import onnx.parser
import onnxruntime
import openvino

print("onnxruntime", onnxruntime.__version__, "openvino", openvino.__version__)
model = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21]> g (float[1, 1, 4] X) => (float[1, 1, 2] Y)'
    " { Y = MaxPool<kernel_shape = [2], strides = [2]>(X) }"
)
x = numpy.array([[[numpy.nan, numpy.nan, numpy.nan, 2]]], numpy.float32)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
core = openvino.Core()
compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
for name, y in (("ONNX Runtime", session.run(None, {"X": x})[0]), ("OpenVINO", compiled([x])[0])):
    print(name, "MaxPool of (NaN, NaN) and (NaN, 2):", y.ravel())
    assert y[0, 0, 0] == numpy.finfo(numpy.float32).min and y[0, 0, 1] == 2
EOF
