#!/usr/bin/env bash
# Guess: integers wrap as ONNX Runtime's and NumPy's do, and a result of type int64 or double was computed as such.
# Case: OpenVINO's CPU plugin saturates int8 and uint8, has no int64 (2**31 becomes negative), multiplies int32
# matrices in float32, and computes doubles in float32.
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


def run(kind, body, x):
    sizes, names = ", ".join(map(str, x.shape)), ", ".join("MN"[: x.ndim])
    text = f'<ir_version: 10, opset_import: ["": 21]> g ({kind}[{sizes}] X) => ({kind}[{names}] Y) {{ {body} }}'
    model = core.read_model(onnx.parser.parse_model(text).SerializeToString())
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return compiled([x])[0]


eight = run("uint8", "Y = Add(X, X)", numpy.array([200, 1], numpy.uint8))
print("uint8: 200 + 200 =", eight[0], "and wrapped it would be", 400 % 256)
assert eight.dtype == numpy.uint8 and eight[0] == 255
sixty_four = run("int64", "Y = Add(X, X)", numpy.array([2**30, 2**40], numpy.int64))
print("int64: 2**30 + 2**30 =", sixty_four[0], "and 2**40 + 2**40 =", sixty_four[1])
assert sixty_four.dtype == numpy.int64 and sixty_four.tolist() == [-(2**31), 0]
body = "B = Constant<value = int32[2, 1] {1, 1}>() Y = MatMul(X, B)"
product = run("int32", body, numpy.array([[16777217, 2]], numpy.int32))
print("int32: (16777217, 2) times (1, 1) =", product.item())
assert product.dtype == numpy.int32 and product.item() != 16777219
third = run("double", "C = Constant<value = double {3.0}>() Y = Div(X, C)", numpy.ones(2))
print("double: 1 / 3 =", repr(float(third[0])))
assert third.dtype == numpy.float64 and third[0] == numpy.float32(1) / numpy.float32(3)
EOF
