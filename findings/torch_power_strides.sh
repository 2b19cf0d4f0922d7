#!/usr/bin/env bash
# Guess: an element-wise function gives equal results for equal numbers, whatever the strides of the tensor are.
# Case: PyTorch's `x ** 3.3` differs for 80 % of numbers between a contiguous and a strided float32 tensor on CPUs,
# and the contiguous one, which is the faster path, has errors of more than one ulp. exp and tanh agree.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 torch==2.13.0
"$folder/env/bin/python" - <<'EOF'
import torch

print("torch", torch.__version__, torch.backends.cpu.get_cpu_capability())
x = torch.linspace(0.1, 20, 1000)
strided = x.repeat_interleave(2)[::2]
assert torch.equal(x, strided) and not strided.is_contiguous()
differ = (x**3.3 != strided**3.3).float().mean().item()
exact = x.double() ** 3.3
errors = [((y.double() - exact).abs() / exact / 2**-24).max().item() for y in (x**3.3, strided**3.3)]
print("x ** 3.3 differs for a share of", differ)
print("largest relative error in units of 2**-24: contiguous {:.2f}, strided {:.2f}".format(*errors))
assert differ > 0.5 and errors[0] > 2 > errors[1]
assert torch.equal(x.exp(), strided.exp()) and torch.equal(x.tanh(), strided.tanh())
EOF
