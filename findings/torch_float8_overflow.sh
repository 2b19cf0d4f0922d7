#!/usr/bin/env bash
# Guess: libraries agree on what a number beyond the range of a float8 type becomes, or each has one rule for all
# types.
# Case: PyTorch clips to 448 in float8_e4m3fn, even infinity, but gives infinity in float8_e5m2 and NaN in
# float8_e4m3fnuz. ml_dtypes gives NaN in float8_e4m3fn.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 ml_dtypes==0.6.0 torch==2.13.0
"$folder/env/bin/python" - <<'EOF'
import ml_dtypes
import numpy
import torch

print("torch", torch.__version__, "ml_dtypes", ml_dtypes.__version__)
x = numpy.array([448, 500, 1e6, numpy.inf], numpy.float32)
seen = {}
for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"):
    with numpy.errstate(all="ignore"):
        other = x.astype(getattr(ml_dtypes, name)).astype(numpy.float32)
    seen[name] = torch.from_numpy(x).to(getattr(torch, name)).float().numpy(), other
    print(x, "to", name, "PyTorch:", seen[name][0], "ml_dtypes:", seen[name][1])
assert (seen["float8_e4m3fn"][0] == 448).all()
assert seen["float8_e4m3fn"][1][0] == 448 and numpy.isnan(seen["float8_e4m3fn"][1][1:]).all()
assert seen["float8_e5m2"][0][0] == 448 and numpy.isinf(seen["float8_e5m2"][0][2:]).all()
assert numpy.isnan(seen["float8_e4m3fnuz"][0]).all()
EOF
