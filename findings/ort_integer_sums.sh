#!/usr/bin/env bash
# Guess: int32 sums wrap in ReduceSum as they do in MatMul and CumSum of the same library, and in NumPy.
# Case: ONNX Runtime's ReduceSum, ReduceProd and ReduceSumSquare of int32 saturate at 2**31 - 1. MatMul and CumSum
# wrap.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0
"$folder/env/bin/python" - <<'EOF'
import numpy
import onnx.parser
import onnxruntime

print("onnxruntime", onnxruntime.__version__)


def run(body, x):
    sizes, names = ", ".join(map(str, x.shape)), ", ".join("MN"[: x.ndim])
    text = f'<ir_version: 10, opset_import: ["": 21]> g (int32[{sizes}] X) => (int32[{names}] Y) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"X": x})[0].ravel()[-1]


top = 2**31 - 1
x = numpy.array([top, 2], numpy.int32)
wrapped = int(x.sum(dtype=numpy.int32))
seen = {
    "ReduceSum": run("Y = ReduceSum(X)", x),
    "ReduceProd": run("Y = ReduceProd(X)", x),
    "ReduceSumSquare": run("Y = ReduceSumSquare(X)", x),
    "CumSum": run("A = Constant<value = int64 {0}>() Y = CumSum(X, A)", x),
    "MatMul": run("B = Constant<value = int32[2, 1] {1, 1}>() Y = MatMul(X, B)", x[None]),
}
for name, y in seen.items():
    print(name, "of", x.tolist(), "=", y)
assert seen["ReduceSum"] == seen["ReduceProd"] == seen["ReduceSumSquare"] == top
assert seen["CumSum"] == seen["MatMul"] == wrapped
EOF
