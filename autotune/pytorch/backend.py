"""`torch.compile(model, backend="autotune")`: graphs of inference as executables of ours, and of training if asked for.

    with torch.no_grad():
        compiled = torch.compile(model, backend="autotune")
        logits = compiled(image)

Parameters and buffers are constants of the executables. Each call checks whether they have changed, and compiles anew
then; with the option `training` they are inputs. A graph that Dynamo traced for any shape is compiled for each shape
that it comes in.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._guards import TracingContext
from torch.fx import GraphModule

from autotune.compiler.cache.locations import open_cache
from autotune.compiler.cache.store import FolderCache
from autotune.compiler.executable.graph_family import GraphAt
from autotune.compiler.executable.shapes import FIXED, ShapeSet
from autotune.graph.frontends.aten.decompositions import decompositions
from autotune.graph.frontends.aten.tensors import is_dense
from autotune.graph.ir import Graph
from autotune.pytorch.building import LoadedGraph
from autotune.pytorch.kernels import compile_graph
from autotune.pytorch.open_sizes import OpenProgram
from autotune.pytorch.options import read_options
from autotune.pytorch.program import Program, Programs, make_program
from autotune.pytorch.shapes import list_size_inputs
from autotune.pytorch.traces import MakeRun, make_trace
from autotune.pytorch.training import needs_gradients, trained_by

__all__ = ["TESTED_VERSIONS", "MakeRun", "Program", "autotune_backend", "compiled_by", "unusable"]

TESTED_VERSIONS = ("2.13", "2.14")
"""Versions of PyTorch that this is tested with: the graphs for backends change with each version."""


def autotune_backend(
    module: GraphModule,
    example_inputs: list[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compiles a graph as a backend of `torch.compile`.

    Args:
        module: a graph that Dynamo has traced.
        example_inputs: example inputs of the graph.
        mode: `default` or `max-autotune`.
        options: see `Options`.

    Raises:
        ValueError: an unknown mode or option, or a value out of range.
    """
    chosen = read_options(mode, options)

    def compile_with_options(graph: Graph | GraphAt, shapes: ShapeSet = FIXED) -> LoadedGraph:
        return compile_graph(graph, chosen, shapes)

    def begin(graph: GraphModule, fixed: Sequence[int]) -> Callable[..., Any]:
        return OpenProgram(graph, fixed, compile_with_options, chosen.sizes)

    def make_run(graph: GraphModule, fixed: Sequence[int]) -> Callable[..., Any]:
        if not list_size_inputs(graph):
            return make_program(graph, fixed, compile_with_options)
        return Programs(
            graph, fixed, compile_with_options, chosen.shapes, None if chosen.background or not chosen.sizes else begin
        )

    cache = open_cache()
    return compiled_by(module, example_inputs, make_run, chosen.training, None if cache is None else cache.store)


def compiled_by(
    module: GraphModule,
    example_inputs: list[Any],
    make: MakeRun,
    training: bool = False,
    store: FolderCache | None = None,
) -> Callable[..., Any]:
    """Makes a function that runs a graph of Dynamo, by `make` of its graph of ATen's operators.

    A graph that cannot be compiled at all is left to PyTorch, with a warning that says why.

    Args:
        module: the graph.
        example_inputs: example inputs of the graph.
        make: graph of ATen's operators, and indices of its constant inputs → function that runs it.
        training: whether parameters change from call to call, and graphs that are to be differentiated are compiled.
        store: store of graphs of inference in the form after AOTAutograd; None: none are stored.
    """
    if why := unusable(example_inputs, training):
        warnings.warn(f"autotune leaves a graph to PyTorch: {why}", stacklevel=2)
        left: Callable[..., Any] = module.forward
        return left
    if training:
        return trained_by(module, example_inputs, make)

    trace = make_trace(module, example_inputs, store)
    known = None if trace is None else trace.run(make)
    if known is not None:
        return known

    def inference(graph: GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        fixed = _fixed()
        if trace is not None:
            trace.keep(graph, fixed)
        return make_boxed_func(make(graph, fixed))

    with torch.no_grad():
        compiled: Callable[..., Any] = aot_autograd(
            fw_compiler=inference, inference_compiler=inference, decompositions=decompositions()
        )(module, example_inputs)
    return compiled


def unusable(inputs: Sequence[Any], training: bool = False) -> str:
    """Explains why a graph of such inputs cannot be compiled; "" if it can."""
    if not torch.__version__.startswith(tuple(f"{version}." for version in TESTED_VERSIONS)):
        return f"PyTorch must be {' or '.join(TESTED_VERSIONS)}, but got {torch.__version__}"
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if not training and needs_gradients(inputs):
        return (
            "gradients must be off (`torch.no_grad()` or `torch.inference_mode()`) unless "
            '`options={"training": True}` is given, but they are on'
        )
    if other := [tensor.device for tensor in tensors if tensor.device.type != "cpu"]:
        return f"tensors must be on the CPU, but got one on {other[0]}"
    if layouts := [tensor.layout for tensor in tensors if not is_dense(tensor)]:
        return f"tensors must be dense, but got one of {layouts[0]}"
    return ""


def _fixed() -> list[int]:
    """Lists indices of a graph's inputs that are parameters or buffers, and that it does not change."""
    context = TracingContext.try_get()
    facts = None if context is None else context.fw_metadata
    if facts is None:
        return []
    changed = {place for place, given in enumerate(facts.input_info) if given.mutates_data}
    return [place for place in facts.static_input_indices if place not in changed]
