"""Cache of graphs that AOTAutograd derived from Dynamo's, which would take most of a second start.

Entries are graphs of ATen's operators alone, as JSON, without values of parameters. Everything after such a graph is
made anew of the current parameters. The key is a digest of everything that the graph depends on. These are Dynamo's
graph, facts about its inputs, PyTorch's state that decides how operators are decomposed, and both versions.

AOTAutograd also writes code around a graph for inputs that it changes and outputs that are views of inputs. Only graphs
that need none are kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._functorch.config
from torch._dynamo import disable
from torch._functorch._aot_autograd.schemas import OutputType
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node

from autotune.compiler.cache.code import code_digest
from autotune.compiler.cache.store import FolderCache
from autotune.graph.frontends.aten.registry import CONVERTERS
from autotune.pytorch.plain_graphs import (
    NotPlain,
    aten_data,
    aten_module,
    function_name,
    plain_nodes,
    tensor_kind,
)

MakeRun = Callable[[GraphModule, Sequence[int]], Callable[..., Any]]
_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)


class Trace:
    """Cached trace of one graph of Dynamo.

    Args:
        module: the graph, before AOTAutograd has seen it.
        inputs: inputs of the graph.
        store: store of the traces.

    Attributes:
        tensors: tensors that AOTAutograd has the graph take before its own inputs.
        fixed: places of parameters and buffers among both.
    """

    def __init__(self, module: GraphModule, inputs: Sequence[Any], store: FolderCache) -> None:
        self._module, self._store = module, store
        self.tensors = [*_list_tensors(module.named_parameters), *_list_tensors(module.named_buffers)]
        placeholders = module.graph.find_nodes(op="placeholder")
        marked = [place for place, node in enumerate(placeholders) if _is_static(node)]
        self.fixed = [*range(len(self.tensors)), *(len(self.tensors) + place for place in marked)]
        self._count = len(self.tensors) + len(inputs)
        self._key = _key(module, self.tensors, inputs, self.fixed)

    def run(self, make: MakeRun) -> Callable[..., Any] | None:
        """Makes the function that runs the cached graph by `make`; None if there is no such graph."""
        data = None if self._key is None else self._store.get(self._key)
        if data is None:
            return None
        run, tensors = make(aten_module(json.loads(data)), self.fixed), self.tensors

        def run_with_tensors(*inputs: Any) -> Any:
            return run(*tensors, *inputs)

        untraced: Callable[..., Callable[..., Any]] = disable
        return untraced(run_with_tensors if tensors else run, reason="what is compiled is not traced")

    def keep(self, graph: GraphModule, fixed: Sequence[int]) -> None:
        """Stores AOTAutograd's result for the graph, unless it writes code around it.

        Args:
            graph: graph of ATen's operators.
            fixed: places of its inputs that are constants.
        """
        if self._key is None or list(fixed) != self.fixed or not _is_bare(graph, self._count):
            return
        try:
            data = aten_data(graph)
        except NotPlain:
            return
        self._store.put(self._key, json.dumps(data).encode())


def make_trace(module: GraphModule, inputs: Sequence[Any], store: FolderCache | None) -> Trace | None:
    """Returns the trace of a graph; None where it cannot be cached: with gradients on, or under autocast."""
    if store is None or torch.is_grad_enabled() or torch._C._is_any_autocast_enabled():
        return None
    return Trace(module, inputs, store)


def _list_tensors(tensors: Callable[..., Any]) -> list[torch.Tensor]:
    return [tensor for _, tensor in tensors(remove_duplicate=False)]


def _is_static(node: Node) -> bool:
    """Tells whether Dynamo has marked an input as a parameter or buffer."""
    return bool(node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type"))


def _key(module: GraphModule, state: Sequence[torch.Tensor], inputs: Sequence[Any], fixed: Sequence[int]) -> str | None:
    """Computes the digest of all that decides AOTAutograd's result for a graph; None if some of it is not plain."""
    tensors = {name for name, _ in (*module.named_parameters(), *module.named_buffers())}

    def target(node: Node) -> str:
        if node.op == "call_function":
            return function_name(node.target)
        if node.op == "call_module" or (node.op == "get_attr" and str(node.target) not in tensors):
            raise NotPlain(f"graphs must have no graphs within, but got {node.target}")
        return str(node.target)

    try:
        document = {
            "what": "trace",
            "code": code_digest(),
            "torch": [torch.__version__, torch.version.git_version],
            "converters": sorted(CONVERTERS),
            "state": _state(),
            "graph": plain_nodes(module.graph, target),
            "inputs": [_input(value) for value in (*state, *inputs)],
            "fixed": list(fixed),
        }
    except NotPlain:
        return None
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()


def _input(value: Any) -> list[Any]:
    """Describes an input: dtype, shape, strides, offset, and how it relates to gradients."""
    if type(value) not in _PLAIN:
        raise NotPlain(f"inputs must be tensors, but got {type(value).__name__}")
    return [*tensor_kind(value), int(value.storage_offset()), value.requires_grad, value.is_inference()]


def _state() -> list[Any]:
    """Lists switches of PyTorch that decide which operators a graph is decomposed into."""
    attention: Any = torch.backends.cuda  # the names are CUDA's, and the CPU goes by them as well
    return [
        str(torch.get_default_dtype()),
        torch.is_inference_mode_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.mkldnn.enabled,
        torch.backends.mha.get_fastpath_enabled(),
        attention.flash_sdp_enabled(),
        attention.mem_efficient_sdp_enabled(),
        attention.math_sdp_enabled(),
        attention.cudnn_sdp_enabled(),
        torch.backends.cpu.get_cpu_capability(),
        torch._functorch.config.get_hash().hex(),
    ]


def _is_bare(graph: GraphModule, count: int) -> bool:
    """Tells whether a graph has its traced inputs and outputs, so that no code is needed around it."""
    context = TracingContext.try_get()
    facts = None if context is None else context.fw_metadata
    if facts is None or len(graph.graph.find_nodes(op="placeholder")) != count:
        return False
    outputs: Any = graph.graph.output_node().args[0]
    written = any(given.mutates_data or given.mutates_metadata for given in facts.input_info)
    views = any(given.output_type is not OutputType.non_alias for given in facts.output_info)
    return not (written or views or facts.num_intermediate_bases or facts.tokens) and len(outputs) == len(
        facts.output_info
    )
