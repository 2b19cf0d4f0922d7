#!/usr/bin/env bash
# Guess: torch.compile converts floats to int8 as eager PyTorch does, or at least alike for all tensors.
# Case: eager wraps 300.7 to 44. Compiled for CPUs, one number becomes 44 and sixteen become 127 each. uint8 wraps in
# both.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 torch==2.13.0 setuptools==84.2.1
TORCHINDUCTOR_CACHE_DIR="$folder/cache" TORCHINDUCTOR_COMPILE_THREADS=1 "$folder/env/bin/python" - <<'EOF'
import platform
import shutil

import torch

print("torch", torch.__version__, platform.machine(), torch.backends.cpu.get_cpu_capability())
if not (shutil.which("g++") or shutil.which("clang++")):
    raise SystemExit("left out: torch.compile for CPUs needs a C++ compiler")
if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512", "DEFAULT") or platform.machine() != "x86_64":
    raise SystemExit("left out: this is about the vector code for x86-64")
compiled = torch.compile(lambda x: x.to(torch.int8))
seen = {}
for size in (1, 16):
    x = torch.full((size,), 300.7)
    seen[size] = x.to(torch.int8).unique().tolist(), compiled(x).unique().tolist()
    print("300.7 to int8,", size, "numbers: eager", seen[size][0], "compiled", seen[size][1])
assert seen == {1: ([44], [44]), 16: ([44], [127])}
x = torch.full((16,), 300.7)
unsigned = torch.compile(lambda x: x.to(torch.uint8))(x)
print("300.7 to uint8, 16 numbers: eager", x.to(torch.uint8)[0].item(), "compiled", unsigned[0].item())
assert torch.equal(unsigned, x.to(torch.uint8))
EOF
