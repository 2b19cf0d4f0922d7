"""Division of FX graphs into compiled pieces and operators left to PyTorch, in as few pieces as possible."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from autotune.graph.errors import UnsupportedModelError
from autotune.graph.frontends.aten import ConstantValues, IndexCheck, import_fx, make_constant_values, refusals
from autotune.graph.frontends.aten.registry import operator_name, tensor_type
from autotune.graph.ir import Graph
from autotune.pytorch.layouts import is_view, laid_out_before, with_views_apart
from autotune.pytorch.saved_memory import is_saved

_PREFIX = "autotune_piece_"
_LAID_OUT = "values that `as_strided` reads must be laid out by PyTorch's own operators"


@dataclass(frozen=True)
class Piece:
    """A compiled part of an FX graph.

    Attributes:
        target: name of the module that replaces it, which is called with the inputs of the graph in their order.
        graph: graph of its computation.
        examples: values that the module gives, as PyTorch would make them.
        checks: checks of indices, at each call. Outputs of the graph that `examples` lacks are for these alone.
        saved: flag of each example, whether a backward graph alone reads the value.
    """

    target: str
    graph: Graph
    examples: tuple[torch.Tensor, ...]
    checks: tuple[IndexCheck, ...] = ()
    saved: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Split:
    """An FX graph in pieces.

    Attributes:
        module: graph in which modules replace the pieces.
        pieces: compiled pieces.
        compiled_count: operators of the graph that are in pieces.
        refusals: operator → how many of it are left to PyTorch, and why the first of them is.
    """

    module: GraphModule
    pieces: tuple[Piece, ...]
    compiled_count: int
    refusals: Mapping[str, tuple[int, str]]


class _NodeSupport(OperatorSupportBase):
    def __init__(self, refused_nodes: Set[Node]) -> None:
        self._refused_nodes = refused_nodes

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        return node.op == "call_function" and node not in self._refused_nodes


def split(module: GraphModule, constants: Mapping[str, torch.Tensor]) -> Split:
    """Splits a graph of ATen's operators.

    Args:
        module: stays as it is.
        constants: placeholders whose value stays the same, by name.
    """
    module, apart = with_views_apart(module)
    found = _single_piece(module, make_constant_values({**constants, **_attributes(module)}), apart)
    if found is not None:
        return found
    copied = module if apart else GraphModule(module, copy.deepcopy(module.graph))
    copied.graph.eliminate_dead_code()
    constant_values = make_constant_values({**constants, **_attributes(copied)})
    refused = refusals(copied.graph, constant_values)
    refused |= dict.fromkeys(laid_out_before(copied.graph, constant_values), _LAID_OUT)
    refused |= _unusual_constants(copied.graph, constant_values, refused)
    places = {node: number for number, node in enumerate(copied.graph.nodes)}
    parts = [sorted(nodes, key=places.__getitem__) for nodes in _parts(copied, refused.keys() | apart)]
    parts = sorted((nodes for nodes in parts if _computes(nodes, constant_values)), key=lambda nodes: places[nodes[0]])
    fused = fuse_by_partitions(copied, [dict.fromkeys(nodes) for nodes in parts], _PREFIX, always_return_tuple=True)
    calls = [node for node in fused.graph.nodes if node.op == "call_module" and str(node.target).startswith(_PREFIX)]
    pieces = tuple(_piece(fused, call, constant_values) for call in calls)
    compiled = sum(node.target is not operator.getitem for nodes in parts for node in nodes)
    return Split(fused, pieces, compiled, _count_reasons(refused))


def _single_piece(module: GraphModule, constants: ConstantValues, apart: Set[Node]) -> Split | None:
    """Compiles a graph as one piece, as most are; returns None if some of it is left to PyTorch.

    Args:
        module: the graph.
        constants: values of constants; learns more.
        apart: views that PyTorch makes of the piece's outputs.
    """
    inputs = module.graph.find_nodes(op="placeholder")
    computed = [node for node in module.graph.nodes if node.op == "call_function" and node not in apart]
    arguments = [node for node in inputs if node.name not in constants.arrays and not _calling_nodes(node) <= apart]
    output = module.graph.output_node()
    readers = [node for node in module.graph.nodes if node in apart]
    ends = [node for user in (*readers, output) for node in user.all_input_nodes]
    results = [node for node in dict.fromkeys(ends) if node not in inputs and node not in apart]
    name = f"{_PREFIX}0"
    if not all(node.op == "call_function" for node in results) or laid_out_before(module.graph, constants):
        return None
    if not all(_has_type(node) for node in results):
        return None
    checks: list[IndexCheck] = []
    try:
        graph = import_fx(module.graph, arguments, results, constants, name, apart, checks)
    except UnsupportedModelError:
        return None  # each node is asked by itself then, which says what is left, and why
    if not _computes(computed, constants):
        return None
    outer = FxGraph()
    values = {node: outer.node_copy(node) for node in inputs}
    call = outer.call_module(name, tuple(values[node] for node in arguments))
    values |= {node: outer.call_function(operator.getitem, (call, place)) for place, node in enumerate(results)}
    for node in module.graph.nodes:
        if node in apart:
            values[node] = outer.node_copy(node, values.__getitem__)
    outer.output(torch.fx.map_arg(output.args[0], values.__getitem__))
    piece = _make_piece(name, graph, results, checks)
    compiled = sum(node.target is not operator.getitem for node in computed)
    return Split(GraphModule({name: torch.nn.Identity()}, outer), (piece,), compiled, {})


def _attributes(module: GraphModule) -> dict[str, torch.Tensor]:
    """Returns the tensors that the graph itself holds."""
    found = {node.name: getattr(module, str(node.target)) for node in module.graph.find_nodes(op="get_attr")}
    return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}


def _has_type(node: Node) -> bool:
    """Tells whether graphs can have a node's value."""
    try:
        tensor_type(node.meta["val"], node.name)
    except UnsupportedModelError:
        return False
    return True


def _unusual_constants(graph: FxGraph, constants: ConstantValues, refused_nodes: Mapping[Node, str]) -> dict[Node, str]:
    """Explains which constants graphs cannot have, such as float64 ones, if PyTorch or a caller reads them."""
    reasons: dict[Node, str] = {}
    for node in reversed(graph.nodes):
        if node.op != "call_function" or not (node.name in constants.arrays or node.name in constants.parts):
            continue
        if any(user.op == "output" or user in refused_nodes or user in reasons for user in node.users):
            try:
                tensor_type(node.meta["val"], node.name)
            except UnsupportedModelError as error:
                reasons[node] = str(error)
    return reasons


def _calling_nodes(node: Node) -> Set[Node]:
    """Lists the operators that read a node."""
    return {user for user in node.users if user.op == "call_function"}


def _parts(module: GraphModule, refused_nodes: Set[Node]) -> Iterable[Iterable[Node]]:
    if not refused_nodes:
        return [[node for node in module.graph.nodes if node.op == "call_function"]]
    support = _NodeSupport(refused_nodes)
    found = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True).propose_partitions()
    return [partition.nodes for partition in found]


def _computes(nodes: Sequence[Node], constants: ConstantValues) -> bool:
    """Tells whether a part does more than view values in another way, which costs PyTorch nothing."""
    return any(not constants.learn(node) and not is_view(node) for node in nodes)


def _count_reasons(refused_nodes: Mapping[Node, str]) -> dict[str, tuple[int, str]]:
    counts: dict[str, tuple[int, str]] = {}
    for node, why in refused_nodes.items():
        if node.target is not operator.getitem:
            count, first = counts.get(operator_name(node.target), (0, why))
            counts[operator_name(node.target)] = count + 1, first
    return counts


def _piece(module: GraphModule, call: Node, constants: ConstantValues) -> Piece:
    """Imports the graph of a module's call, and drops constants from the call's arguments."""
    inner = module.get_submodule(str(call.target))
    assert isinstance(inner, GraphModule)
    placeholders = inner.graph.find_nodes(op="placeholder")
    pairs = list(zip(placeholders, call.all_input_nodes, strict=True))
    mine = ConstantValues(
        {inside.name: constants.arrays[outside.name] for inside, outside in pairs if outside.name in constants.arrays}
    )
    arguments = [(inside, outside) for inside, outside in pairs if inside.name not in mine.arrays]
    outputs: Any = inner.graph.output_node().args[0]
    checks: list[IndexCheck] = []
    name = str(call.target)
    graph = import_fx(inner.graph, [inside for inside, _ in arguments], outputs, mine, name, checks=checks)
    call.args = tuple(outside for _, outside in arguments)
    return _make_piece(name, graph, outputs, checks)


def _make_piece(name: str, graph: Graph, outputs: Sequence[Node], checks: Sequence[IndexCheck]) -> Piece:
    return Piece(name, graph, tuple(node.meta["val"] for node in outputs), tuple(checks), tuple(map(is_saved, outputs)))
