#!/usr/bin/env bash
# Guess: a converter to float16 rounds weights to the nearest float16.
# Case: onnxconverter-common clips all weights to 10,000, though float16 reaches 65,504, and moves weights below 1e-7
# to it: 20,000 becomes 10,000 and 1e-9 becomes a hundred times as much.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 onnx==1.23.2 onnxconverter-common==1.16.0
"$folder/env/bin/python" - <<'EOF'
import warnings

import numpy
import onnx.parser
import onnxconverter_common
from onnx import numpy_helper
from onnxconverter_common import float16

print("onnxconverter-common", onnxconverter_common.__version__, "onnx", onnx.__version__)
model = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21]> g (float[4] X) => (float[4] Y)'
    " <float[4] W = {20000, -50000, 1e-9, 3e-8}> { Y = Add(X, W) }"
)
weights = numpy_helper.to_array(model.graph.initializer[0])
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    converted = numpy_helper.to_array(float16.convert_float_to_float16(model).graph.initializer[0])
print("weights", weights, "converted", converted, "by NumPy", weights.astype(numpy.float16))
assert converted.dtype == numpy.float16 and converted[:2].tolist() == [10000, -10000]
assert (converted[2:] == numpy.float16(1e-7)).all()
EOF
