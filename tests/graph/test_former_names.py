"""Former names of modules, which work for one release."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

NAMES = {
    "autotune.graph.onnx_model": ("autotune.graph.onnx.model", "load_model"),
    "autotune.graph.substitutions": ("autotune.lab.substitutions", "explore"),
}


@pytest.mark.parametrize("former", NAMES)
def test_a_former_name_gives_the_same_with_a_warning(former: str) -> None:
    module, name = NAMES[former]
    wanted: Any = getattr(importlib.import_module(module), name)
    with pytest.warns(DeprecationWarning, match=f"{former} is now {module}, but got {name}"):
        assert getattr(importlib.import_module(former), name) is wanted
    with pytest.raises(AttributeError):
        importlib.import_module(former).no_such_name  # noqa: B018
