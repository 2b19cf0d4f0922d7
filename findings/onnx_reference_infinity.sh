#!/usr/bin/env bash
# Guess: onnx.reference is the oracle on edge values: a log-sum-exp of nothing but -inf is -inf, and +inf quantises to
# 127.
# Case: it returns NaN, and -128. ONNX Runtime returns what one expects.
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

print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__, "numpy", numpy.__version__)
inf = numpy.float32(numpy.inf)


def run(body, output, x):
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g (float[2] X) => ({output}[N] Y) {{ {body} }}'
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with numpy.errstate(invalid="ignore"):
        return [evaluator.run(None, {"X": x})[0].ravel() for evaluator in (session, ReferenceEvaluator(model))]


runtime, reference = run("Y = ReduceLogSumExp(X)", "float", numpy.array([-inf, -inf]))
print("ReduceLogSumExp(-inf, -inf): ONNX Runtime", runtime, "onnx.reference", reference)
assert runtime[0] == -inf and numpy.isnan(reference[0])
body = "S = Constant<value = float {1.0}>() Z = Constant<value = int8 {0}>() Y = QuantizeLinear(X, S, Z)"
runtime, reference = run(body, "int8", numpy.array([inf, -inf]))
print("QuantizeLinear(inf, -inf): ONNX Runtime", runtime, "onnx.reference", reference)
assert runtime.tolist() == [127, -128] and reference.tolist() == [-128, -128]
EOF
