#!/usr/bin/env bash
# Guess: Q8_0 has a relative error of at most 1/254 beside a block's largest weight, whatever the block's size is.
# Case: scales are float16, so blocks of small weights lose it: 10 % at 1e-5, and all weights of 1e-6 become 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 gguf==0.19.0
"$folder/env/bin/python" - <<'EOF'
import gguf
import numpy
from gguf import GGMLQuantizationType as Kind
from importlib.metadata import version

print("gguf", version("gguf"))
weights = numpy.random.default_rng(0).standard_normal((1, 256)).astype(numpy.float32)
errors = {}
for size in (1, 1e-4, 1e-5, 1e-6):
    scaled = weights * numpy.float32(size)
    y = gguf.quants.dequantize(gguf.quants.quantize(scaled, Kind.Q8_0), Kind.Q8_0)
    errors[size] = abs(y - scaled).max() / abs(scaled).max()
    print("deviation", size, "largest error beside the largest weight", errors[size])
assert errors[1] < 0.005 and errors[1e-5] > 0.05 and errors[1e-6] == 1
EOF
