#!/usr/bin/env bash
# Guess: backends of torch.compile see reads by strides only if the model has them.
# Case: global average pooling is `mean` for contiguous images. For images with their channels last it is `mean` and
# `as_strided`, which moves no element and states other strides for dimensions of one element.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 torch==2.13.0
"$folder/env/bin/python" - <<'EOF'
import torch
from torch._dynamo.backends.common import aot_autograd

print("torch", torch.__version__)


def list_operators(x):
    graphs = []

    def record(module, _):
        graphs.append(module.graph)
        return module

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 1), backend=aot_autograd(fw_compiler=record))(x)
    return [str(node.target) for graph in graphs for node in graph.nodes if node.op == "call_function"]


x = torch.rand(2, 3, 4, 5)
contiguous = list_operators(x)
last = list_operators(x.contiguous(memory_format=torch.channels_last))
print("contiguous:", contiguous)
print("channels last:", last)
assert contiguous == ["aten.mean.dim"] and last == ["aten.mean.dim", "aten.as_strided.default"]
EOF
