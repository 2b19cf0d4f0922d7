#!/usr/bin/env bash
# Guess: onnx.reference, the reference evaluator, follows the opset that a model imports.
# Case: Softmax of opset 11, which takes all axes from 1 on together, is computed along the last axis, as in opset 13.
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

print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
x = numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4)
seen = {}
for opset in (11, 13):
    model = onnx.parser.parse_model(
        f'<ir_version: 7, opset_import: ["": {opset}]> g (float[2, 3, 4] X) => (float[2, 3, 4] Y) {{ Y = Softmax(X) }}'
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    seen[opset] = [evaluator.run(None, {"X": x})[0] for evaluator in (session, ReferenceEvaluator(model))]
    sums = [y[0].sum() for y in seen[opset]]
    print("opset", opset, "sum of a sample: ONNX Runtime", sums[0], "onnx.reference", sums[1])
assert numpy.isclose(seen[11][0][0].sum(), 1) and numpy.isclose(seen[11][1][0].sum(), 3)
assert numpy.allclose(*seen[13])
EOF
