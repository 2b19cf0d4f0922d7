#!/usr/bin/env bash
# Guess: Max is commutative, and activations hand NaN on, so a NaN in a network is seen at its end.
# Case: on OpenVINO's CPU plugin Max(NaN, 1) is 1 and Max(1, NaN) is NaN. Relu, Clip and HardSigmoid turn NaN into 0,
# the lower bound, and 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 onnx==1.23.2 openvino==2026.4.1
"$folder/env/bin/python" - <<'EOF'
import numpy
import onnx.parser
import openvino

print("openvino", openvino.__version__)
core = openvino.Core()


def run(body, *arrays):
    inputs = ", ".join(f"float[16] X{index}" for index in range(len(arrays)))
    text = f'<ir_version: 10, opset_import: ["": 21]> g ({inputs}) => (float[16] Y) {{ {body} }}'
    model = core.read_model(onnx.parser.parse_model(text).SerializeToString())
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return compiled(list(arrays))[0]


nans, ones = numpy.full(16, numpy.nan, numpy.float32), numpy.ones(16, numpy.float32)
clip = "A = Constant<value = float {-1.0}>() B = Constant<value = float {6.0}>() Y = Clip(X0, A, B)"
seen = {
    "Max(NaN, 1)": run("Y = Max(X0, X1)", nans, ones),
    "Max(1, NaN)": run("Y = Max(X0, X1)", ones, nans),
    "Relu(NaN)": run("Y = Relu(X0)", nans),
    "Clip(NaN, -1, 6)": run(clip, nans),
    "HardSigmoid(NaN)": run("Y = HardSigmoid(X0)", nans),
}
for name, y in seen.items():
    print(name, "=", y[0])
    assert numpy.array_equal(y, numpy.full(16, y[0]), equal_nan=True)
assert [y[0] for name, y in seen.items() if name != "Max(1, NaN)"] == [1, 0, -1, 1]
assert numpy.isnan(seen["Max(1, NaN)"][0])
EOF
