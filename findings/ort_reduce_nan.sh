#!/usr/bin/env bash
# Guess: ReduceMax treats NaN like the operator Max of the same library, which returns NaN whichever operand is NaN.
# Case: ONNX Runtime's ReduceMax and ReduceMin return NaN only if the first element is NaN. A NaN elsewhere is
# ignored.
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
nan = numpy.nan


def run(body, *arrays):
    inputs = ", ".join(f"float[{len(array)}] X{index}" for index, array in enumerate(arrays))
    text = f'<ir_version: 10, opset_import: ["": 21]> g ({inputs}) => (float[N] Y) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {f"X{index}": numpy.array(array, numpy.float32) for index, array in enumerate(arrays)})[0]


for name in ("ReduceMax", "ReduceMin"):
    reduce = f"Y = {name}(X0)"
    seen = {position: run(reduce, numpy.roll([nan, 1, 2, 3], position))[0] for position in range(4)}
    print(name, "of four numbers, by the position of NaN:", seen)
    assert numpy.isnan(seen[0]) and not numpy.isnan([seen[1], seen[2], seen[3]]).any()
pairs = run("Y = Max(X0, X1)", [nan, 1], [1, nan])
print("Max(NaN, 1), Max(1, NaN):", pairs)
assert numpy.isnan(pairs).all()
EOF
