#!/usr/bin/env bash
# Guess: channels_last changes where values lie, and results by rounding alone.
# Case: PyTorch's group_norm of channels_last takes a mean of squares minus a squared mean. With a mean of 1,000 and a
# deviation of 1 it is wrong by more than 0.5, at 10,000 by hundreds. Contiguous tensors are right to 0.01.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 torch==2.13.0
"$folder/env/bin/python" - <<'EOF'
import torch

print("torch", torch.__version__)
x = torch.randn(1, 4, 16, 16, generator=torch.Generator().manual_seed(0))
for mean in (100.0, 1000.0, 10000.0):
    y = x + mean
    exact = torch.nn.functional.group_norm(y.double(), 4)
    last = y.contiguous(memory_format=torch.channels_last)
    errors = [(torch.nn.functional.group_norm(z, 4) - exact).abs().max().item() for z in (y, last)]
    print("mean", mean, "largest error: contiguous {:.1e}, channels_last {:.1e}".format(*errors))
    assert errors[0] < 0.01
    assert mean == 100 or errors[1] > 0.5
EOF
