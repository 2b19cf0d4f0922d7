"""Conversion of PyTorch tensors to NumPy arrays on the same memory, and back."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

from autotune.graph.types import Array


def dtype_name(dtype: torch.dtype) -> str:
    """Returns a dtype's name in graphs: `float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


def is_dense(tensor: torch.Tensor) -> bool:
    """Tells whether a tensor is strided: not sparse, quantised, nested or in oneDNN's layout."""
    return tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested


def array_from_tensor(tensor: torch.Tensor) -> Array:
    """Returns the elements of a CPU tensor as an array on the same memory."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor._is_zerotensor():  # PyTorch allocates no memory for it
        tensor = tensor.clone()
    if tensor.dtype == torch.bfloat16:
        bits: Array = tensor.view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    found: Array = tensor.numpy()
    return found


def tensor_from_array(array: Array) -> torch.Tensor:
    """Returns the elements of an array as a tensor on the same memory."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
