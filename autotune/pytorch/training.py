"""Graphs of training: the forward graph, and the backward graph that AOTAutograd derives from it.

Parameters change with each step, so that all inputs of these graphs are inputs of executables, and none is a constant.
Values that gradients need of the forward pass are outputs of one executable and inputs of the other. The cheapest cut
of the joint graph decides which values these are, and which are recomputed (PyTorch's min-cut partitioner).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import GraphModule
from torch.nn.attention import SDPBackend, sdpa_kernel

from autotune.graph.frontends.aten.decompositions import training_decompositions
from autotune.pytorch.saved_layouts import save_channels_last
from autotune.pytorch.saved_memory import mark_saved


def trained_by(
    module: GraphModule, example_inputs: list[Any], make: Callable[[GraphModule, Sequence[int]], Callable[..., Any]]
) -> Callable[..., Any]:
    """Compiles a graph of Dynamo and its gradients, by `make` of graphs of ATen's operators.

    Attention becomes products and a softmax before it is differentiated, and so do its gradients.

    Args:
        module: the graph; where gradients are off, or no input needs one, it is compiled for inference.
        example_inputs: example inputs of the graph.
        make: graph of ATen's operators, and indices of its constant inputs, here () → function that runs it.
    """

    def compile_part(graph: GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        return make_boxed_func(make(graph, ()))

    with sdpa_kernel(SDPBackend.MATH) if needs_gradients(example_inputs) else nullcontext():
        trained: Callable[..., Any] = aot_autograd(
            fw_compiler=compile_part,
            bw_compiler=compile_part,
            inference_compiler=compile_part,
            partition_fn=_partition,
            decompositions=training_decompositions(),
        )(module, example_inputs)
    return trained


def _partition(*inputs: Any, num_fwd_outputs: int, **options: Any) -> tuple[GraphModule, GraphModule]:
    """Cuts a joint graph into a forward and a backward graph, and lays out the values between the two."""
    forward, backward = min_cut_rematerialization_partition(*inputs, num_fwd_outputs=num_fwd_outputs, **options)
    save_channels_last(forward, backward, num_fwd_outputs)
    mark_saved(forward, num_fwd_outputs)
    return forward, backward


def needs_gradients(inputs: Sequence[Any]) -> bool:
    """Tells whether a graph of such inputs has to be differentiated."""
    return torch.is_grad_enabled() and any(isinstance(given, torch.Tensor) and given.requires_grad for given in inputs)
