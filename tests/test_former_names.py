"""Former names of modules, which work for one release."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

NAMES = {
    "autotune.compiler.whole": "autotune.compiler.bundle_cache",
    "autotune.graph.onnx_model": "autotune.graph.frontends.onnx.model",
    "autotune.network.compiled": "autotune.api",
    "autotune.network.options": "autotune.compiler.options",
    "autotune.search": "autotune.tuner.search",
    "autotune.search.base": "autotune.tuner.search.base",
    "autotune.tuning.loop": "autotune.tuner.loop",
}


def check_former_name(former: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports a module by its former name, anew, and expects that of the new name and a warning."""
    import_module(former.partition(".")[0])
    for name in [name for name in sys.modules if former == name or former.startswith(f"{name}.")]:
        if name not in ("autotune", "autotune.graph", "costmodel", "costmodel.dataset"):
            monkeypatch.delitem(sys.modules, name)
    with pytest.warns(DeprecationWarning, match=f"^{former} is now {new}$"):
        assert import_module(former) is import_module(new)


@pytest.mark.parametrize("former", NAMES)
def test_a_former_name_is_the_module_with_a_warning(former: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_former_name(former, NAMES[former], monkeypatch)


def test_a_module_that_never_was_is_not_found() -> None:
    with pytest.warns(DeprecationWarning), pytest.raises(ModuleNotFoundError, match="autotune.tuner.search.nothing"):
        import_module("autotune.search.nothing")


@pytest.mark.parametrize(
    ("module", "former", "new"),
    [
        ("autotune.compiler.pipeline", "pipeline_of", "make_pipeline"),
        ("autotune.graph.errors", "ModelError", "UnsupportedModelError"),
        ("autotune.language", "ModelError", "LanguageModelError"),
        ("costmodel.models.errors", "ModelError", "CostModelError"),
    ],
)
def test_a_former_name_in_a_module_is_the_new_one_with_a_warning(module: str, former: str, new: str) -> None:
    home = import_module(module)
    with pytest.warns(DeprecationWarning, match=f"^{module}.{former} is now {new}$"):
        assert getattr(home, former) is getattr(home, new)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = home.nothing
