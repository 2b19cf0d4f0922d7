#!/usr/bin/env bash
# Guess: `auto_pad = SAME_UPPER` with stride 1 keeps the size, dilated or not, as the specification's formula says.
# Case: ONNX Runtime's MaxPool pads for the window without dilation: 8 values become 6. onnx.reference returns 8.
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
model = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21]> g (float[1, 1, 8] X) => (float[1, 1, N] Y)'
    ' { Y = MaxPool<kernel_shape = [3], auto_pad = "SAME_UPPER", dilations = [2]>(X) }'
)
x = numpy.arange(8, dtype=numpy.float32).reshape(1, 1, 8)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
runtime, reference = session.run(None, {"X": x})[0], ReferenceEvaluator(model).run(None, {"X": x})[0]
inferred = onnx.shape_inference.infer_shapes(model).graph.output[0].type.tensor_type.shape.dim[2].dim_value
print("ONNX Runtime", runtime.ravel(), "onnx.reference", reference.ravel(), "size by shape inference", inferred)
assert runtime.shape[2] == 6 and reference.shape[2] == 8
EOF
