#!/usr/bin/env bash
# Guess: Cast to a narrow type and back leaves numbers that the narrow type has, and `saturate` keeps float8 finite.
# Case: OpenVINO ignores `saturate`, whose default is 1: 500 becomes NaN in float8. Cast to int4 and back keeps eight
# bits.
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
from onnx import TensorProto

print("onnxruntime", onnxruntime.__version__, "openvino", openvino.__version__)
core = openvino.Core()
x = numpy.array([500, 100, 3, -9], numpy.float32)
seen = {}
for name, kind in (("float8e4m3fn", TensorProto.FLOAT8E4M3FN), ("int4", TensorProto.INT4)):
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[4] X) => (float[4] Y)'
        f" {{ Z = Cast<to = {kind}>(X) Y = Cast<to = {TensorProto.FLOAT}>(Z) }}"
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    read = core.read_model(model.SerializeToString())
    compiled = core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    seen[name] = session.run(None, {"X": x})[0], compiled([x])[0]
    print(x, "through", name, "ONNX Runtime:", seen[name][0], "OpenVINO:", seen[name][1])
assert seen["float8e4m3fn"][0][0] == 448 and numpy.isnan(seen["float8e4m3fn"][1][0])
assert abs(seen["int4"][0]).max() <= 8 and seen["int4"][1][1] == 100
EOF
