#!/usr/bin/env bash
# Guess: onnx.version_converter returns a model of the same function, or refuses.
# Case: Hardmax of opset 11 means all axes from 1 on, and becomes the last axis in 13, though Softmax beside it is
# adapted. Linear Resize of opset 10 has corners at the origin, and its successor has half-pixel centres.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0
"$folder/env/bin/python" - <<'EOF'
import numpy
import onnx.parser
import onnxruntime
from onnx import version_converter

print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)


def run(model, x):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"X": x})[0].ravel()


cases = {
    "Softmax": (11, "2, 3, 4", "Y = Softmax(X)"),
    "Hardmax": (11, "2, 3, 4", "Y = Hardmax(X)"),
    "Resize": (10, "1, 1, 2, 2", 'S = Constant<value = float[4] {1, 1, 2, 2}>() Y = Resize<mode = "linear">(X, S)'),
}
same = {}
for name, (opset, shape, body) in cases.items():
    size = tuple(int(extent) for extent in shape.split(","))
    x = numpy.arange(numpy.prod(size), dtype=numpy.float32).reshape(size)
    result = ", ".join("ABCD"[: len(size)])
    text = f'<ir_version: 8, opset_import: ["": {opset}]> g (float[{shape}] X) => (float[{result}] Y) {{ {body} }}'
    before = onnx.parser.parse_model(text)
    after = version_converter.convert_version(before, 13)
    pair = run(before, x), run(after, x)
    same[name] = numpy.allclose(*pair)
    print(name, "of opset", opset, pair[0][:6], "and converted to 13", pair[1][:6])
assert same == {"Softmax": True, "Hardmax": False, "Resize": False}
EOF
