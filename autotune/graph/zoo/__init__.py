"""Networks built here as ONNX models with seeded weights, beyond those in the `onnx` package.

Another network is a module with `build(seed=0, ...) -> onnx.ModelProto` and a line in `BUILDERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import onnx

from autotune.graph.zoo import bert_base, mobilenet_v2, resnet18

BUILDERS: Mapping[str, Callable[..., onnx.ModelProto]] = MappingProxyType(
    {"resnet18": resnet18.build, "mobilenet_v2": mobilenet_v2.build, "bert_base": bert_base.build}
)
"""Builders by name; their arguments all have defaults."""

__all__ = ["BUILDERS", "bert_base", "mobilenet_v2", "resnet18"]
