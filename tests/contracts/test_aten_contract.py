"""The contract of converters of ATen operators: their nodes compute what PyTorch's own kernel does.

A new converter is held to this by a case in `aten_cases`; without one this fails.
"""

from __future__ import annotations

import operator
import zlib
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.fx import Graph, Node  # noqa: E402

from autotune.graph.evaluate import evaluate  # noqa: E402
from autotune.graph.frontends.aten import CONVERTERS, import_fx, make_constant_values, refusals  # noqa: E402
from autotune.graph.frontends.aten.tensors import array_from_tensor  # noqa: E402
from search_space.operators.estimates import STEP  # noqa: E402
from tests.contracts.aten_cases import CASES, TensorArgument  # noqa: E402

ALL = [(name, place) for name, cases in CASES.items() for place in range(len(cases))]
JUMPS = ("pow.", "cumsum", "remainder", "floor_divide", "fmod", "round.", "div.Tensor_mode")
"""Operators whose results in 16 bits lie far from each other where a rounding falls to the other side."""
FLOAT32 = ("avg_pool3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
"""Operators that PyTorch has in float32 alone."""

ALONE = (
    "native_group_norm.default",
    *("_native_batch_norm_legit_no_training.default", "native_batch_norm.default", "_native_batch_norm_legit.no_stats"),
    *("_scaled_dot_product_flash_attention_for_cpu.default", "log_sigmoid_forward.default", "_fused_rms_norm.default"),
    "mkldnn_rnn_layer.default",
)
"""Operators of which the first output alone is converted."""


def overload(name: str) -> Any:
    """An operator by its name in the table."""
    space: Any = torch.ops.prims if name.startswith("prims.") else torch.ops.aten
    packet, kind = name.removeprefix("prims.").split(".")
    return getattr(getattr(space, packet), kind)


SPREAD = ("convolution", "_adaptive_avg", "adaptive_avg", "upsample", "_upsample", "scaled_dot", "_scaled_dot")
"""Operators of which a product with zero, or a mask, meets elements that PyTorch's own kernel does not."""
ARITHMETIC = ("gelu", "remainder", "floor_divide", "div.Tensor_mode", "native_layer_norm", "var_mean", "std_mean")
"""Operators that make NaN of an infinity elsewhere than PyTorch does, or not at all."""


class Call:
    """A graph of one call, its inputs, and what PyTorch gives.

    Args:
        name, index: operator and number of the case.
        dtype: type of floats.
        special: whether NaN, infinities and zeros of both signs are among the inputs.
    """

    def __init__(self, name: str, index: int, dtype: torch.dtype, special: bool = False) -> None:
        self.special = special
        self.generator = torch.Generator().manual_seed(zlib.crc32(name.encode()) + index)
        self.graph, self.inputs, self.constants = Graph(), {}, {}
        self.tensors: dict[Node, torch.Tensor] = {}
        self.dtype, target = dtype, overload(name)
        *args, last = CASES[name][index]
        args, kwargs = (args, last) if isinstance(last, dict) else ([*args, last], {})
        nodes, named = (
            [self.add_argument(arg) for arg in args],
            {key: self.add_argument(arg) for key, arg in kwargs.items()},
        )
        self.node = self.graph.call_function(target, tuple(nodes), named)

        def tensor(node: Node) -> torch.Tensor:
            return self.tensors[node]

        found = target(*torch.fx.map_arg(nodes, tensor), **torch.fx.map_arg(named, tensor))
        self.node.meta["val"] = found
        if isinstance(found, torch.Tensor):
            self.outputs, self.expected = [self.node], [found]
        else:
            read = [0] if name in ALONE else range(len(found))
            self.outputs = [self.graph.call_function(operator.getitem, (self.node, k)) for k in read]
            self.expected = [found[k] for k in read]
            for node, value in zip(self.outputs, self.expected, strict=True):
                node.meta["val"] = value

    def add_argument(self, arg: Any) -> Any:
        """An argument as the graph's node has it."""
        if isinstance(arg, list):
            return [self.add_argument(each) for each in arg]
        if not isinstance(arg, TensorArgument):
            return arg
        tensor = arg.draw(self.generator, self.dtype)
        if self.special and not arg.constant and arg.kind in ("float", "positive") and tensor.numel() > 3:
            places = torch.randint(0, tensor.numel(), (6,), generator=self.generator)
            tensor.view(-1)[places] = torch.tensor([np.nan, np.inf, -np.inf, -0.0, 0.0, np.nan])
        node = self.graph.placeholder(f"x{len(self.tensors)}")
        node.meta["val"] = self.tensors[node] = tensor
        (self.constants if arg.constant else self.inputs)[node] = tensor
        return node


def test_every_converter_has_a_case() -> None:
    assert set(CASES) == set(CONVERTERS)


@pytest.mark.parametrize(("name", "index"), ALL, ids=lambda value: str(value))
def test_a_converted_call_computes_what_pytorch_does(name: str, index: int) -> None:
    call = Call(name, index, torch.float32)
    for found, wanted in zip(convert(call), call.expected, strict=True):
        assert (found.shape, str(found.dtype)) == (tuple(wanted.shape), str(wanted.dtype).removeprefix("torch."))
        np.testing.assert_allclose(found, wanted.numpy(), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "index"), [c for c in ALL if not c[0].startswith(JUMPS + FLOAT32)], ids=str)
def test_a_converted_call_rounds_once_in_bfloat16(name: str, index: int) -> None:
    if name.startswith("mkldnn_rnn") and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("PyTorch computes these layers in bfloat16 with AVX-512 alone")
    call = Call(name, index, torch.bfloat16)
    for found, wanted in zip(convert(call), call.expected, strict=True):
        assert (found.shape, str(found.dtype)) == (tuple(wanted.shape), str(wanted.dtype).removeprefix("torch."))
        ours, theirs = found.astype(float), array_from_tensor(wanted).astype(float)
        largest = np.abs(theirs[np.isfinite(theirs)]).max(initial=0)
        np.testing.assert_allclose(ours, theirs, rtol=2 * STEP["bfloat16"], atol=2 * STEP["bfloat16"] * largest)


@pytest.mark.parametrize(("name", "index"), [c for c in ALL if not c[0].startswith(SPREAD + ARITHMETIC)], ids=str)
def test_a_converted_call_keeps_what_is_no_number(name: str, index: int) -> None:
    call = Call(name, index, torch.float32, special=True)
    with np.errstate(all="ignore"):
        results = convert(call)
    for found, wanted in zip(results, call.expected, strict=True):
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-5)


def convert(call: Call) -> list[np.ndarray]:
    """Imports the graph and evaluates it by NumPy."""
    inputs = list(call.inputs)
    known = make_constant_values({node.name: tensor for node, tensor in call.constants.items()})
    assert refusals(call.graph, known) == {}
    graph = import_fx(call.graph, [node for node in inputs if node.meta["val"].numel()], call.outputs, known)
    values = evaluate(
        graph, {node.name: array_from_tensor(call.inputs[node]) for node in inputs if node.name in graph.inputs}
    )
    return [values[name] for name in graph.outputs]
