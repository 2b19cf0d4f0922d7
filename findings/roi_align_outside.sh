#!/usr/bin/env bash
# Guess: RoiAlign of a region outside of the image is 0, whatever the image holds.
# Case: ONNX Runtime, OpenVINO and ONNX's reference evaluator multiply the first pixel by 0, so it is NaN if that is NaN.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile \
    numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0 openvino==2026.4.1
"$folder/env/bin/python" - <<'EOF'
import numpy
import onnx
import onnx.parser
import onnxruntime
import openvino
from onnx.reference import ReferenceEvaluator

print("onnxruntime", onnxruntime.__version__, "openvino", openvino.__version__, "onnx", onnx.__version__)
model = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21]> g (float[1, 1, 4, 4] X, float[1, 4] R, int64[1] I) => (float[1, 1, 1, 1] Y)'
    " { Y = RoiAlign<sampling_ratio = 2>(X, R, I) }"
)
region, image = numpy.array([[9, 9, 12, 12]], numpy.float32), numpy.zeros(1, numpy.int64)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
core = openvino.Core()
compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
reference = ReferenceEvaluator(model)
for place, is_nan in (((0, 0), True), ((3, 3), False)):
    x = numpy.zeros((1, 1, 4, 4), numpy.float32)
    x[(0, 0, *place)] = numpy.nan
    feeds = {"X": x, "R": region, "I": image}
    for name, y in (
        ("ONNX Runtime", session.run(None, feeds)[0]),
        ("OpenVINO", compiled([x, region, image])[0]),
        ("reference", reference.run(None, feeds)[0]),
    ):
        print(f"{name}: NaN at {place}, region from 9 to 12 of a 4 x 4 image:", y.ravel())
        assert bool(numpy.isnan(y).all()) == is_nan and (is_nan or (y == 0).all())
EOF
