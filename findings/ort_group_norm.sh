#!/usr/bin/env bash
# Guess: GroupNormalization with one group a channel is as accurate as InstanceNormalization, which computes the same.
# Case: it is expanded to a mean of squares minus a squared mean. Channels of mean 10,000 and deviation 1 become NaN
# or are wrong by more than 1, in ONNX Runtime and in onnx.reference. InstanceNormalization is right to 0.01.
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
x = (numpy.random.default_rng(0).standard_normal((1, 4, 256)) + 1e4).astype(numpy.float32)
exact = (x - x.mean(2, float, keepdims=True)) / numpy.sqrt(x.var(2, float, keepdims=True) + 1e-5)
weights = {"S": numpy.ones(4, numpy.float32), "B": numpy.zeros(4, numpy.float32)}


def largest_errors(operator):
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]>'
        " g (float[1, 4, 256] X, float[4] S, float[4] B) => (float[1, 4, 256] Y)"
        f" {{ Y = {operator}(X, S, B) }}"
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with numpy.errstate(invalid="ignore"):
        results = [evaluator.run(None, {"X": x, **weights})[0] for evaluator in (session, ReferenceEvaluator(model))]
    return [abs(result - exact).max() for result in results]


for operator, accurate in (("GroupNormalization<num_groups = 4>", False), ("InstanceNormalization", True)):
    runtime, reference = largest_errors(operator)
    print(operator, "largest error: ONNX Runtime", runtime, "onnx.reference", reference)
    for error in (runtime, reference):
        assert error < 0.01 if accurate else (numpy.isnan(error) or error > 1)
EOF
