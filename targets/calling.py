"""Calling convention of executables: inputs in order or by name, NumPy's arrays or PyTorch's tensors; outputs alike."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from targets.base import Parameter, RunError, as_array, check_array, sizes_in
from targets.manifest import ExecutableError

Array = NDArray[Any]
Outputs = Any
"""One array, a tuple of them, or a mapping by name; tensors in place of arrays."""


def in_order(name: str, inputs: Sequence[Parameter], arguments: Sequence[Any]) -> Sequence[Any]:
    """Puts inputs in the network's order: positional ones as they are, or those of a single mapping by name.

    Raises:
        ExecutableError: a mapping of other names than the network's inputs.
    """
    if len(arguments) != 1 or not isinstance(arguments[0], Mapping):
        return arguments
    wanted = [p.name for p in inputs]
    if set(arguments[0]) != set(wanted):
        raise ExecutableError(
            f"`{name}` must be given {', '.join(wanted)}, but got {', '.join(map(str, arguments[0]))}"
        )
    return [arguments[0][key] for key in wanted]


def check_inputs(
    name: str, inputs: Sequence[Parameter], arrays: Sequence[Any], sizes: Mapping[str, tuple[int, int]] | None = None
) -> list[Array]:
    """Converts inputs to arrays of NumPy and checks that the network takes them.

    Args:
        name: name of the network.
        inputs: inputs of the network.
        arrays: arguments of the call.
        sizes: least and greatest value of each open size, by name.

    Raises:
        ExecutableError: states which it does not take and why.
    """
    if len(arrays) != len(inputs):
        names = ", ".join(p.name for p in inputs)
        raise ExecutableError(f"`{name}` must be given {names}, but got {len(arrays)} arrays")
    checked_arrays = []
    for given, parameter in zip(arrays, inputs, strict=True):
        try:
            checked_arrays.append(as_array(given))
        except (TypeError, ValueError, RuntimeError, BufferError) as error:
            raise ExecutableError(f"input `{parameter.name}` must be an array, but {error}") from error
    try:
        known = sizes_in(checked_arrays, inputs, sizes or {})
        for array, parameter in zip(checked_arrays, inputs, strict=True):
            check_array(array, parameter.at(known), "input")
    except RunError as error:
        raise ExecutableError(str(error)) from None
    return checked_arrays


def handed_back(outputs: Sequence[Array], parameters: Sequence[Parameter], arguments: Sequence[Any]) -> Outputs:
    """Returns outputs in the form of the inputs: by name for a mapping, as tensors of PyTorch if one input was a
    tensor.
    """
    by_name = len(arguments) == 1 and isinstance(arguments[0], Mapping)
    values = arguments[0].values() if by_name else arguments
    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(value, torch.Tensor) for value in values):
        outputs = [_tensor(torch, array) for array in outputs]
    if by_name:
        return {p.name: value for p, value in zip(parameters, outputs, strict=True)}
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _tensor(torch: Any, array: Array) -> Any:
    """Returns a tensor on an array's memory; bfloat16, which NumPy lacks, is reinterpreted from its bits."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
