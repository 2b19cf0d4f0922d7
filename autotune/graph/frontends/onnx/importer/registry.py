"""Registry of importers of ONNX operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import onnx

from autotune.graph.calls import Call, Context, Result


@dataclass
class ModelContext(Context):
    """An ONNX model during its import.

    Attributes:
        functions: functions of the model, by domain and name.
        calling: functions whose bodies are being imported, from the outermost on.
    """

    functions: Mapping[tuple[str, str], onnx.FunctionProto] = field(default_factory=dict)
    calling: tuple[tuple[str, str], ...] = ()


def get_model_context(call: Call) -> ModelContext:
    """Returns the context of a node with subgraphs, which only ONNX models have."""
    assert isinstance(call.context, ModelContext)
    return call.context


Handler = Callable[[Call], str | Sequence[Result | None]]
_Same = TypeVar("_Same", bound=Handler)
HANDLERS: dict[str, Handler] = {}
"""ONNX operator → function that adds its nodes and returns its value, or all results in order."""


DEFAULT = ("", "ai.onnx")
"""Names of the default domain."""
CONTRIB_HANDLERS: dict[tuple[str, str], Handler] = {}
"""Handlers of operators of other domains, by domain and operator."""


def imports(*names: str, domain: str = "") -> Callable[[_Same], _Same]:
    """Registers a function as the importer of operators of ONNX's or another domain."""

    def register(handler: _Same) -> _Same:
        table: dict[Any, Handler] = CONTRIB_HANDLERS if domain else HANDLERS
        for name in names:
            key = (domain, name) if domain else name
            assert key not in table, key
            table[key] = handler
        return handler

    return register


def find_handler(node: onnx.NodeProto) -> Handler | None:
    """Returns the importer of a node, or None."""
    return HANDLERS.get(node.op_type) if node.domain in DEFAULT else CONTRIB_HANDLERS.get((node.domain, node.op_type))
