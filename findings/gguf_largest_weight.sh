#!/usr/bin/env bash
# Guess: Q4_0 and Q5_0 scale by the largest magnitude, so they represent both ends of a symmetric block alike.
# Case: their scale takes the sign of the first largest weight. A block of 1 and -1 becomes 1 and -0.875, and its
# negative -1 and 0.875: the error of a largest weight is an eighth.
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
block = numpy.tile(numpy.array([1, -1], numpy.float32), 16)[None]
for kind, end in ((Kind.Q4_0, 0.875), (Kind.Q5_0, 0.9375)):
    for weights in (block, -block):
        y = gguf.quants.dequantize(gguf.quants.quantize(weights, kind), kind)[0, :2]
        print(kind.name, weights[0, :2], "becomes", y)
        assert y[0] == weights[0, 0] and y[1] == weights[0, 1] * end
EOF
