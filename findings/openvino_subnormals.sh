#!/usr/bin/env bash
# Guess: exponentials in float32 run down to the smallest subnormal number, 1.4e-45, as in ONNX Runtime and NumPy.
# Case: on OpenVINO's CPU plugin Exp and Softmax give 0 at -100, where they are below 1.18e-38, the smallest normal
# number. A sum of two subnormal numbers is exact there.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0 openvino==2026.4.1
"$folder/env/bin/python" - <<'EOF'
import numpy
import onnx.parser
import onnxruntime
import openvino

print("openvino", openvino.__version__, "onnxruntime", onnxruntime.__version__)
core = openvino.Core()


def run(body, x):
    text = f'<ir_version: 10, opset_import: ["": 21]> g (float[1, 32] X) => (float[1, 32] Y) {{ {body} }}'
    model = onnx.parser.parse_model(text).SerializeToString()
    compiled = core.compile_model(core.read_model(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return compiled([x])[0], session.run(None, {"X": x})[0]


logits = numpy.zeros((1, 32), numpy.float32)
logits[:, 16:] = -100  # the distance that Swin's masks put between the windows of a shifted image
far = numpy.full((1, 32), -100, numpy.float32)
small = numpy.full((1, 32), 1e-40, numpy.float32)
seen = {
    "Exp(-100)": run("Y = Exp(X)", far),
    "Softmax at -100": run("Y = Softmax<axis = -1>(X)", logits),
    "1e-40 + 1e-40": run("Y = Add(X, X)", small),
}
last = {name: [y[0, -1] for y in results] for name, results in seen.items()}
for name, (by_openvino, by_onnxruntime) in last.items():
    print(name, "=", by_openvino, "in OpenVINO,", by_onnxruntime, "in ONNX Runtime")
assert all(last[name][0] == 0 < last[name][1] for name in ("Exp(-100)", "Softmax at -100"))
assert last["1e-40 + 1e-40"][0] == last["1e-40 + 1e-40"][1] > 0
EOF
