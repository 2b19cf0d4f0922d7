"""The cost model that our own kernels compute: the scores of the one by NumPy, whatever the number of statements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autotune.lab.compiled_attention import CompiledAttention
from costmodel.features import NAMES
from costmodel.models import registry
from costmodel.models.attention import BLOCK, AttentionModel

pytest.importorskip("torch", reason="needs the package torch")
OPTIONS = {"hidden": 8, "steps": 30}
rng = np.random.default_rng(0)


def programs(count: int, statements: int) -> list[np.ndarray]:
    """Features of programs, those of estimates among them finite."""
    return [rng.standard_normal((statements, len(NAMES))).astype(np.float32) for _ in range(count)]


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model, path = AttentionModel(**OPTIONS), tmp_path_factory.mktemp("model") / "attention"
    model.fit(programs(40, 1) + programs(40, 3), rng.random(80))
    model.save(path)
    return path


@pytest.mark.parametrize(("count", "statements"), [(1, 1), (BLOCK, 2), (BLOCK + 7, 3)])
def test_it_scores_as_the_one_by_numpy(model_path: Path, count: int, statements: int) -> None:
    plain, compiled = AttentionModel(), CompiledAttention()
    for model in (plain, compiled):
        model.load(model_path)
    features = np.array(programs(count, statements))
    scores = compiled.predict(features)
    np.testing.assert_allclose(scores, plain.predict(features), rtol=1e-4, atol=1e-4)
    # who else is asked about changes nothing
    assert np.array_equal(compiled.predict(features[:1]), scores[:1])


def test_what_is_learned_anew_is_compiled_anew() -> None:
    model = CompiledAttention(**OPTIONS)
    with pytest.raises(ValueError, match="must be fitted or loaded"):
        model.predict(np.array(programs(2, 1)))
    features = np.array(programs(30, 1))
    found = []
    for _ in range(2):
        model.fit(list(features), rng.random(30))
        found.append(model.predict(features))
        plain = AttentionModel(**OPTIONS)
        plain._state = model._state
        np.testing.assert_allclose(found[-1], plain.predict(features), rtol=1e-4, atol=1e-4)
    assert not np.array_equal(*found)


def test_it_is_a_model_of_ones_own_by_its_name() -> None:
    name = "autotune.lab.compiled_attention:CompiledAttention"
    assert registry.get(name) is CompiledAttention and registry.takes_seed(name)
    assert isinstance(registry.make(name, OPTIONS, 3), CompiledAttention)
