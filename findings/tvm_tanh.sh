#!/usr/bin/env bash
# Guess: TVM's tanh is right to some ulp, also near zero, where tanh(x) is x.
# Case: in float32, tanh(1e-5) is off by 0.1 %. tanh(1e-20) is 0 in float32 and in float64.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 apache-tvm==0.27.0.post1
"$folder/env/bin/python" - <<'EOF'
import numpy
import tvm
from tvm import te, tirx

print("tvm", tvm.__version__)


def tanh(x):
    a = te.placeholder(x.shape, str(x.dtype), "A")
    b = te.compute(x.shape, lambda i: tirx.tanh(a[i]), "B")
    result = tvm.runtime.empty(x.shape, str(b.dtype), tvm.cpu())
    tvm.compile(te.create_prim_func([a, b]), target="llvm")(tvm.runtime.tensor(x, tvm.cpu()), result)
    return result.numpy()


x = numpy.array([1, 1e-2, 1e-5, 1e-20])
errors = {kind: abs(tanh(x.astype(kind)).astype(float) / numpy.tanh(x) - 1) for kind in ("float32", "float64")}
for kind, error in errors.items():
    print(kind, "x =", x, "relative errors", error)
assert errors["float32"][0] < 1e-5 and errors["float32"][2] > 1e-4
assert errors["float32"][3] == 1 and errors["float64"][3] == 1
EOF
