"""Calls that PyTorch refuses are refused when compiled: indices outside of an axis, operands of several types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from autotune.pytorch.backend import autotune_backend, unusable  # noqa: E402


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def compile_function(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend=autotune_backend, options={"threads": 1}, **{"dynamic": False, **options})


def outcome(function: Callable[..., Any], *inputs: Any) -> Any:
    """The value, or the error that is raised."""
    with torch.no_grad():
        try:
            return function(*inputs)
        except (IndexError, RuntimeError) as error:
            return error


def make_indices(*numbers: int) -> Any:
    return torch.tensor(numbers)


TABLE = nn.Embedding(4, 2)
INDEXED_CALLS: dict[str, tuple[Callable[..., Any], Any, list[Any], list[Any]]] = {
    "embedding": (lambda x, i: functional.embedding(i, x), torch.randn(4, 2), [[0, 3]], [[5, 0], [-1, 0]]),
    "a layer's table": (lambda x, i: TABLE(i) + x, torch.randn(2), [[0, 3]], [[5, 0], [-1, 0]]),
    "x[i]": (lambda x, i: x[i] * 2, torch.randn(5), [[0, 4], [-5, -1]], [[7, 0], [-6, 0]]),
    "x[i, j]": (lambda x, i: x[i, i + 1], torch.randn(5, 3), [[0, 1], [-2, 0]], [[2, 0], [-5, 0]]),
    "an index that is computed": (lambda x, i: x[i * 2], torch.randn(5), [[0, 2], [-1, 1]], [[3, 0]]),
    "an index of 32 bits": (lambda x, i: x[i.int()], torch.randn(5), [[0, 4]], [[7, 0]]),
    "gather": (lambda x, i: x.gather(0, i), torch.randn(5), [[0, 4]], [[9, 0], [-1, 0]]),
    "index_select": (lambda x, i: x.index_select(0, i), torch.randn(5), [[0, 4]], [[5, 0], [-1, 0]]),
    "take": (lambda x, i: x.take(i), torch.randn(2, 3), [[0, 5], [-6, 1]], [[6, 0], [-7, 0]]),
    "scatter": (lambda x, i: x.scatter(1, i[:, None], 1.0), torch.randn(2, 3), [[0, 2]], [[3, 0], [-1, 0]]),
    "index_add": (lambda x, i: x.index_add(0, i, x[:2]), torch.randn(5), [[0, 4]], [[5, 0], [-1, 0]]),
    "index_copy": (lambda x, i: x.index_copy(0, i, x[:2]), torch.randn(5), [[0, 4]], [[5, 0], [-1, 0]]),
    "one_hot": (lambda x, i: functional.one_hot(i, 4) @ x, torch.arange(4), [[0, 3]], [[4, 0], [-1, 0]]),
    "targets": (functional.cross_entropy, torch.randn(2, 3), [[0, 2], [-100, 1]], [[3, 0], [-1, 0]]),
}


@pytest.mark.parametrize("name", INDEXED_CALLS)
def test_indices_outside_of_an_axis_raise_and_others_do_not(name: str) -> None:
    function, x, inside, outside = INDEXED_CALLS[name]
    run = compile_function(function)
    for numbers in (*inside, *outside, inside[0]):
        wanted, found = outcome(function, x, make_indices(*numbers)), outcome(run, x, make_indices(*numbers))
        assert isinstance(wanted, Exception) == (numbers in outside)
        if numbers in outside:
            assert isinstance(found, (IndexError, RuntimeError))
        else:
            torch.testing.assert_close(found, wanted)


def test_indices_outside_of_a_table_raise_at_any_size() -> None:
    run = compile_function(TABLE, dynamic=True)
    for count in (2, 7):
        torch.testing.assert_close(outcome(run, torch.arange(count) % 4), TABLE(torch.arange(count) % 4).detach())
        assert isinstance(outcome(run, torch.full((count,), 4)), IndexError)


def test_constant_indices_outside_of_an_axis_raise() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("places", make_indices(0, 7))

        def forward(self, x: Any) -> Any:
            return x[self.places] + 1

    assert isinstance(outcome(compile_function(Fixed()), torch.randn(5)), IndexError)
    torch.testing.assert_close(outcome(compile_function(Fixed()), torch.arange(8.0)), torch.tensor([1.0, 8.0]))


MIXED_CALLS: dict[str, Callable[..., Any]] = {
    "linear": functional.linear,
    "a product": lambda x, w: x @ w.t(),
    "addmm": lambda x, w: torch.addmm(x[:, :3], x, w.t()),
    "a convolution": lambda x, w: functional.conv1d(x[None], w[..., None].transpose(0, 1)[:, :2]),
    "attention": lambda x, w: functional.scaled_dot_product_attention(x[None], w[None], w[None]),
    "layer norm": lambda x, w: functional.layer_norm(x, (4,), w[0]),
    "probabilities that are none": lambda x, w: functional.binary_cross_entropy(w - 9, w),
    "a cross product": lambda x, w: torch.linalg.cross(x[:, :3], w[:2, :3]),
}


@pytest.mark.parametrize("name", MIXED_CALLS)
def test_operands_of_several_types_are_as_without_compiling(name: str) -> None:
    x, w = torch.randn(2, 4).bfloat16(), torch.randn(3, 4)
    wanted, found = outcome(MIXED_CALLS[name], x, w), outcome(compile_function(MIXED_CALLS[name]), x, w)
    if isinstance(wanted, Exception):
        assert isinstance(found, type(wanted))
    else:
        torch.testing.assert_close(found, wanted)


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "coordinates": lambda x: x.to_sparse().to_dense(),
    "rows": lambda x: x.to_sparse_csr() @ x,
    "quantised": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize(),
}


@pytest.mark.filterwarnings("ignore:Sparse|.*beta state|.*quantized")
@pytest.mark.parametrize("name", LAYOUTS)
def test_tensors_that_are_not_dense_are_left_to_pytorch(name: str) -> None:
    def function(x: Any) -> Any:
        return LAYOUTS[name](x + 1) * 2

    x = torch.eye(4)
    torch.testing.assert_close(outcome(compile_function(function), x), function(x))


@pytest.mark.filterwarnings("ignore:Sparse|.*beta state")
def test_graphs_of_inputs_that_are_not_dense_are_left_to_pytorch() -> None:
    for tensor in (torch.eye(4).to_sparse(), torch.eye(4).to_sparse_csr(), torch.eye(4).to_mkldnn()):
        assert unusable([torch.eye(4), tensor]) == f"tensors must be dense, but got one of {tensor.layout}"
    assert not unusable([torch.eye(4), torch.eye(4).t(), 3])


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_smoothed_images_are_resized_as_without_compiling(mode: str, corners: bool) -> None:
    def resize(x: Any) -> Any:
        return functional.interpolate(x, size=(3, 5), mode=mode, antialias=True, align_corners=corners)

    x = torch.randn(1, 2, 9, 8)
    torch.testing.assert_close(outcome(compile_function(resize), x), resize(x))


def test_a_computed_weight_of_an_odd_number_of_channels_is_taken_in_bfloat16() -> None:
    x, w = torch.randn(1, 3, 8).bfloat16(), torch.randn(4, 3, 3).bfloat16()
    torch.testing.assert_close(
        outcome(compile_function(functional.conv1d), x, w), functional.conv1d(x, w), rtol=2e-2, atol=2e-2
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (torch.ones(3, dtype=torch.float64), x + 1),
        lambda x: x + torch.zeros(0, 3).sum(),
        lambda x: x.argmax(0),
    ],
)
def test_constants_without_a_type_of_graphs_and_axes_of_nothing_are_left(function: Callable[..., Any]) -> None:
    torch.testing.assert_close(outcome(compile_function(function), torch.tensor(2.0)), function(torch.tensor(2.0)))
