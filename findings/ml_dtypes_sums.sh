#!/usr/bin/env bash
# Guess: NumPy sums bfloat16 and float8 arrays as it sums float16, pairwise, and means use a wider type.
# Case: arrays of ml_dtypes are summed one by one in their own type: 1,000 ones make 256 in bfloat16, and their mean
# is 0.26. Ten sevens in int4 have the mean 0. Products by `@` are right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 ml_dtypes==0.6.0
"$folder/env/bin/python" - <<'EOF'
import ml_dtypes
import numpy

print("numpy", numpy.__version__, "ml_dtypes", ml_dtypes.__version__)
ones = numpy.ones(1000, ml_dtypes.bfloat16)
eighths = numpy.ones(1000, ml_dtypes.float8_e4m3fn)
sevens = numpy.full(10, 7, ml_dtypes.int4)
print("float16: sum", numpy.ones(1000, numpy.float16).sum(), "mean", numpy.ones(1000, numpy.float16).mean())
print("bfloat16: sum", ones.sum(), "mean", ones.mean(), "product", ones @ ones)
print("float8_e4m3fn: sum", eighths.sum(), "mean", eighths.mean())
print("int4: sum of ten sevens", sevens.sum(), "mean", sevens.mean(), "and of int8", sevens.astype(numpy.int8).sum())
assert float(ones.sum()) == 256 and float(ones.mean()) < 0.3 and float(ones @ ones) == 1000
assert float(eighths.sum()) == 16 and float(eighths.mean()) < 0.02
assert int(sevens.sum()) == 6 and float(sevens.mean()) == 0
EOF
