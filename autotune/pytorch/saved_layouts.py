"""Layout of the images that a forward graph saves for its backward graph.

PyTorch's graphs pass values on in the order of their dimensions. Only the backward graph reads saved values.
So images are passed with their channels last, as kernels compute them. Neither graph then transposes them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

_ATEN = torch.ops.aten
_IMAGE_OPERATORS = (_ATEN.convolution.default, _ATEN.max_pool2d_with_indices.default, _ATEN.avg_pool2d.default)
"""Operators whose data and results are images, (batch, channels, height, width)."""
_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""Axes of an image with channels last, and back."""


def save_channels_last(forward: GraphModule, backward: GraphModule, outputs: int) -> None:
    """Changes both graphs so that saved images have their channels last.

    Args:
        forward, backward: graphs that the partitioner made; inputs of `backward` are named after the saved values.
        outputs: number of outputs of `forward` that are not saved values.
    """
    output = forward.graph.output_node()
    returned: Any = output.args[0]
    results = list(returned)
    shapes = _image_shapes(forward)
    inputs = {node.name: node for node in backward.graph.find_nodes(op="placeholder")}
    images = [node for node in dict.fromkeys(results[outputs:]) if _is_image(node, shapes) and node.name in inputs]
    stored = {}
    with forward.graph.inserting_before(output):
        for node in images:
            stored[node] = _last(forward, node)
    changed = results[:outputs] + [stored.get(node, node) for node in results[outputs:]]
    output.args = (tuple(changed),)
    for node in images:
        _read_last(backward, inputs[node.name])
    forward.recompile()
    backward.recompile()


def _image_shapes(module: GraphModule) -> frozenset[tuple[int, ...]]:
    """Collects the shapes of data and results of operators on images."""
    shapes = set()
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target in _IMAGE_OPERATORS:
            result = node.meta["val"]
            for value in (node.args[0].meta["val"], result[0] if isinstance(result, tuple | list) else result):
                shapes.add(tuple(value.shape))
    return frozenset(shape for shape in shapes if len(shape) == 4 and all(type(n) is int for n in shape))


def _is_image(node: Node, shapes: frozenset[tuple[int, ...]]) -> bool:
    """Tells whether a saved value is computed, and has the shape of images whose channels are to be last."""
    value = node.meta.get("val") if isinstance(node, Node) and node.op == "call_function" else None
    if not isinstance(value, torch.Tensor) or not all(type(n) is int for n in value.shape):
        return False
    return tuple(value.shape) in shapes and value.numel() > 0


def _last(module: GraphModule, node: Node) -> Node:
    """Adds a dense copy of an image with its channels last, which kernels write in place of the image."""
    turned = _call(module, _ATEN.permute.default, (node, list(_LAST)), {})
    return _call(module, _ATEN.clone.default, (turned,), {"memory_format": torch.contiguous_format})


def _read_last(module: GraphModule, node: Node) -> None:
    """Reads an input, which has its channels last now, as the image that it was."""
    node.meta = {"val": node.meta["val"].permute(_LAST).contiguous()}
    users = list(node.users)
    with module.graph.inserting_after(node):
        image = _call(module, _ATEN.permute.default, (node, list(_FIRST)), {})
    for user in users:
        user.replace_input_with(node, image)


def _call(module: GraphModule, operator: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Node:
    """Adds a call, with its example value."""
    node = module.graph.call_function(operator, arguments, options)
    values: Any = torch.fx.map_arg(arguments, lambda each: each.meta["val"])
    node.meta["val"] = operator(*values, **options)
    return node
