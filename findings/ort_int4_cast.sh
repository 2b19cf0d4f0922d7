#!/usr/bin/env bash
# Guess: Cast of floats to int4 truncates towards zero, as Cast to int8 does.
# Case: ONNX Runtime rounds to the nearest for int4 and uint4, halves away from zero. onnx.reference truncates.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0
"$folder/env/bin/python" - <<'EOF'
import numpy
import onnx.parser
import onnxruntime
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
x = numpy.array([0.5, 1.75, 2.5, -1.75], numpy.float32)
seen = {}
for name, kind in (("int8", TensorProto.INT8), ("int4", TensorProto.INT4)):
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[4] X) => (float[4] Y)'
        f" {{ Z = Cast<to = {kind}>(X) Y = Cast<to = {TensorProto.FLOAT}>(Z) }}"
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    seen[name] = [evaluator.run(None, {"X": x})[0].tolist() for evaluator in (session, ReferenceEvaluator(model))]
    print(x, "to", name, "ONNX Runtime:", seen[name][0], "onnx.reference:", seen[name][1])
assert seen["int8"] == [[0, 1, 2, -1], [0, 1, 2, -1]]
assert seen["int4"] == [[1, 2, 3, -2], [0, 1, 2, -1]]
EOF
