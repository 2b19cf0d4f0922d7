#!/usr/bin/env bash
# Guess: TVM's simplifier treats floats by IEEE rules unless one asks for fast mathematics.
# Case: `x - x` and `x * 0` are 0 and `x == x` is true for NaN and infinity, and `(x + 1e8) - 1e8` is x: the
# arithmetic analyser applies the rules of integers to floats.
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


def run(function, x):
    a = te.placeholder(x.shape, str(x.dtype), "A")
    b = te.compute(x.shape, lambda i: function(a[i]), "B")
    result = tvm.runtime.empty(x.shape, str(b.dtype), tvm.cpu())
    tvm.compile(te.create_prim_func([a, b]), target="llvm")(tvm.runtime.tensor(x, tvm.cpu()), result)
    return result.numpy()


def number(value):
    return tirx.const(value, "float32")


x = numpy.array([numpy.nan, numpy.inf, 3], numpy.float32)
seen = {
    "x - x": run(lambda v: v - v, x),
    "x * 0": run(lambda v: v * number(0), x),
    "x == x": run(lambda v: tirx.Select(v == v, number(1), number(0)), x),
    "(x + 1e8) - 1e8": run(lambda v: (v + number(1e8)) - number(1e8), x),
}
for name, y in seen.items():
    print(name, "for x =", x, "is", y)
assert (seen["x - x"] == 0).all() and (seen["x * 0"] == 0).all() and (seen["x == x"] == 1).all()
assert seen["(x + 1e8) - 1e8"][2] == 3 != (x[2] + numpy.float32(1e8)) - numpy.float32(1e8)
EOF
