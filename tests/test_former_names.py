"""Former names of modules, which work for one release."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from autotune.pytorch.explain import Explanation
from autotune.tuner.callbacks import SizeProgress
from autotune.tuner.result import TuneResult
from autotune.tuner.sizes.result import SizesResult
from costmodel.models.ridge import RidgeModel
from measure.database import Database
from search_space.hardware import Hardware
from search_space.schedule.state import initial_state
from search_space.space import SearchSpace
from search_space.workloads import dense

CPU = Hardware("cpu", 2, 64, 32, 48 << 10, 2 << 20, 32 << 20, 3.5e11, 4e10)
DENSE = dense(8, 8, 8)

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
    for name, module in list(sys.modules.items()):
        if f"{former}.".startswith(f"{name}.") and module.__name__ != name:  # a former name, too
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
        ("autotune.graph.decisions", "decided", "decide"),
        ("autotune.graph.errors", "ModelError", "UnsupportedModelError"),
        ("autotune.graph.frontends.onnx.model", "inferred", "with_shapes"),
        ("autotune.language", "ModelError", "LanguageModelError"),
        ("costmodel.models.errors", "ModelError", "CostModelError"),
        ("targets.executable", "_restored", "_restore_pickled"),
    ],
)
def test_a_former_name_in_a_module_is_the_new_one_with_a_warning(module: str, former: str, new: str) -> None:
    home = import_module(module)
    with pytest.warns(DeprecationWarning, match=f"^{module}.{former} is now {new}$"):
        assert getattr(home, former) is getattr(home, new)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = home.nothing


def make_result() -> TuneResult:
    return TuneResult("", DENSE, "cpu", CPU, 1, 1, "hot", 0, [], measured_count=7, scored_count=8)


def make_ridge() -> RidgeModel:
    model = RidgeModel()
    model._state = {"weights": 1}
    return model


@pytest.mark.parametrize(
    ("make", "former", "new"),
    [
        (lambda _: Explanation(1, 2, 3, (), ("why",), {}), "compiled", "compiled_operators"),
        (lambda _: Explanation(1, 2, 3, (), ("why",), {}), "whole", "graph_refusals"),
        (lambda _: SizeProgress(1, 2, "n", 3, 1.0, 1.0), "done", "timing_count"),
        (lambda _: make_result(), "measured", "measured_count"),
        (lambda _: make_result(), "scored", "scored_count"),
        (lambda _: SizesResult(dense, "cpu", "n", (), (), {}, {}, {}, {4: None}), "tuned", "search_results"),
        (lambda _: make_ridge(), "learned", "state"),
        (lambda folder: Database(folder / "records.jsonl"), "refused", "refusals"),
        (lambda _: initial_state(DENSE.tensors()[-1:]).stages[-1], "reduced", "reduction"),
        (lambda _: SearchSpace(DENSE, CPU, (), refusals={"x": "why"}), "refused", "refusals"),
        (lambda _: SearchSpace(DENSE, CPU, (), unmatched_rules=("rule",)), "unmatched", "unmatched_rules"),
    ],
)
def test_a_former_attribute_is_the_new_one_with_a_warning(
    make: Callable[[Path], Any], former: str, new: str, tmp_path: Path
) -> None:
    item = make(tmp_path)
    with pytest.warns(DeprecationWarning, match=f"^[A-Za-z]+.{former} is now {new}$"):
        assert getattr(item, former) == getattr(item, new)
