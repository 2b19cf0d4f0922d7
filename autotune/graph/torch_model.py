"""PyTorch modules as ONNX models: `package.module:function`, a function that gives a module and its example inputs."""

from __future__ import annotations

import importlib
import io
import re
from importlib.util import find_spec
from typing import Any

import onnx

from autotune.graph.errors import ModelError

OPSET = 17
_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_import_path(text: str) -> bool:
    """Whether a model's name says where a function is imported from."""
    return _PATH.fullmatch(text) is not None


def export(path: str) -> onnx.ModelProto:
    """What `torch.onnx.export` makes of the module that a function gives, in evaluation mode.

    Args:
        path: `package.module:function`. Called without arguments, the function gives (module, inputs), the inputs
            a tensor or a tuple of them, whose shapes the model will have.

    Raises:
        ModelError: torch is missing, there is no such function, or it gives something else.
    """
    if find_spec("torch") is None:
        raise ModelError(
            f"a PyTorch module needs the package `torch` (pip install torch), which is not installed, but got "
            f"model={path!r}"
        )
    module, inputs = _made(path)
    torch: Any = importlib.import_module("torch")
    if not isinstance(module, torch.nn.Module):
        raise ModelError(
            f"the function of `model` must give (torch.nn.Module, inputs), but got model={path!r}, which gives "
            f"{type(module).__name__}"
        )
    return exported(module, inputs)


def exported(module: Any, inputs: Any) -> onnx.ModelProto:
    """The model of a module in evaluation mode, which it is in only meanwhile.

    Args:
        module: a `torch.nn.Module`.
        inputs: a tensor or a tuple of them, whose shapes the model will have.

    Raises:
        ModelError: an input is an array, a text, or something else that torch does not trace.
    """
    torch: Any = importlib.import_module("torch")
    given = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    for value in given:
        if not isinstance(value, torch.Tensor | tuple | list | dict | bool | int | float | None):
            raise ModelError(f"`example_inputs` must be a tensor or a tuple of tensors, but got {type(value).__name__}")
    training = [part for part in module.modules() if part.training]
    try:
        model = _with_bfloat16(onnx.load_model_from_string(_exported(torch, module.eval(), given)))
    finally:
        for part in training:
            part.training = True
    model.graph.name = type(module).__name__
    return model


def _exported(torch: Any, module: Any, given: tuple[Any, ...]) -> bytes:
    """The model as torch writes it.

    Of a number that meets a bfloat16 torch makes a complex one (see `_with_bfloat16`), which it then cannot write where
    it has folded constants: these are left as nodes.
    """
    for folded in (True, False):
        file = io.BytesIO()
        try:
            with torch.no_grad():
                torch.onnx.export(module, given, file, opset_version=OPSET, dynamo=False, do_constant_folding=folded)
        except RuntimeError as error:
            if not folded or "ComplexDouble" not in str(error):
                raise
        else:
            break
    return file.getvalue()


def _with_bfloat16(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the conversions to bfloat16 that torch's exporter inserts where numbers meet tensors of that type.

    It writes the number of complex128 for them (15 for 16), which nothing else in an exported model is.
    """
    wrong, right = onnx.TensorProto.COMPLEX128, onnx.TensorProto.BFLOAT16
    for node in model.graph.node:
        for item in node.attribute:
            if node.op_type == "Cast" and item.name == "to" and item.i == wrong:
                item.i = right
    kept = [value for value in model.graph.value_info if value.type.tensor_type.elem_type != wrong]
    del model.graph.value_info[:]
    model.graph.value_info.extend(kept)
    return model


def _made(path: str) -> tuple[Any, Any]:
    place, name = path.split(":")
    try:
        function = getattr(importlib.import_module(place), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ModelError(
            f"`model` must be the import path of a function (is its folder in PYTHONPATH?), but got model={path!r}: "
            f"{error}"
        ) from error
    made = function()
    if not isinstance(made, tuple) or len(made) != 2:
        raise ModelError(
            f"the function of `model` must give (torch.nn.Module, inputs), but got model={path!r}, which gives "
            f"{type(made).__name__}"
        )
    return made[0], made[1]
