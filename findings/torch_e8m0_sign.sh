#!/usr/bin/env bash
# Guess: a negative number, which has no float8_e8m0fnu, becomes NaN there, and so does 0, as in ml_dtypes.
# Case: PyTorch drops the sign, -3 becomes 4, and makes 2**-127 of 0.
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
x = numpy.array([3, -3, -1, 0], numpy.float32)
scales = torch.from_numpy(x).to(torch.float8_e8m0fnu).float().numpy()
with numpy.errstate(all="ignore"):
    other = x.astype(ml_dtypes.float8_e8m0fnu).astype(numpy.float32)
print(x, "PyTorch:", scales, "ml_dtypes:", other)
assert scales.tolist() == [4, 4, 1, 2.0**-127]
assert other[0] == 4 and numpy.isnan(other[1:]).all()
EOF
