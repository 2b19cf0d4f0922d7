#!/usr/bin/env bash
# Guess: torch.compile leaves an LSTM to PyTorch, and compiles the layers around it.
# Case: it compiles nothing of a forward function that calls an LSTM, and says nothing. With
# `torch._dynamo.config.allow_rnn` a training graph has every step of the sequence: 32 words make over a thousand nodes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 torch==2.13.0
"$folder/env/bin/python" - <<'EOF'
import warnings

import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func

print("PyTorch", torch.__version__)
warnings.simplefilter("error")  # of which there is none
graphs = []


class Words(nn.Module):
    def __init__(self, recurrent):
        super().__init__()
        self.embedding, self.recurrent = nn.Embedding(100, 16), recurrent
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 100)

    def forward(self, x):
        out = self.recurrent(self.embedding(x))
        return self.head(self.norm(out[0] if isinstance(out, tuple) else out))


def count_nodes(graph, inputs):
    graphs.append(sum(node.op == "call_function" for node in graph.graph.nodes))
    return make_boxed_func(graph.forward)


def compile_with(layer):
    torch._dynamo.reset()
    graphs.clear()
    backend = aot_autograd(fw_compiler=count_nodes, bw_compiler=count_nodes)
    torch.compile(Words(layer), backend=backend)(torch.zeros(2, 32, dtype=torch.int64)).sum().backward()
    return list(graphs)


dense = compile_with(nn.Linear(16, 16))
left = compile_with(nn.LSTM(16, 16, batch_first=True))
torch._dynamo.config.allow_rnn = True
unrolled = compile_with(nn.LSTM(16, 16, batch_first=True))
print("nodes of the graphs with a linear layer", dense)
print("with an LSTM", left)
print("with an LSTM and allow_rnn", unrolled)
assert len(dense) == 2 and not left and sum(unrolled) > 1000
EOF
