"""Boosting through the C interface gives the trees of the Python package, also where the system has no libgomp."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest

from costmodel.models import booster
from costmodel.models.booster import BoosterError, boost

OPTIONS = {"num_leaves": 7, "num_threads": 1, "deterministic": True, "min_data_in_leaf": 2, "verbose": -1, "seed": 3}


def data(rows: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 5)).astype(np.float32)
    return x, np.asarray(x[:, 0] * x[:, 1] + x[:, 2], np.float64)


def trees(text: str) -> str:
    return text.partition("\nparameters:")[0]


def test_the_trees_are_those_of_the_python_package() -> None:
    x, y = data()

    def package(scores: np.ndarray, _: Any) -> tuple[np.ndarray, np.ndarray]:
        return scores - y, np.ones_like(y)

    theirs = lightgbm.train({**OPTIONS, "objective": package}, lightgbm.Dataset(x), 15).model_to_string()
    ours = boost(x, lambda scores: package(scores, None), OPTIONS, 15)
    assert trees(ours) == trees(theirs) and "Tree=14" in ours


def test_what_lightgbm_refuses_is_said_in_its_words() -> None:
    x, _ = data()
    with pytest.raises(BoosterError, match="num_leaves"):
        boost(x, lambda scores: (scores, scores), {**OPTIONS, "num_leaves": 1}, 2)


def test_a_wheels_openmp_runtime_stands_in_for_the_systems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundled = tmp_path / "libgomp-0a1b2c3d.so.1.0.0"
    bundled.write_bytes(b"\x7fELF...\0libgomp-0a1b2c3d.so.1.0.0\0libc.so.6\0")
    asked: list[tuple[str, bytes]] = []

    def load(path: str) -> Any:  # no mode: what is loaded stays local
        if path.endswith("lib_lightgbm.so") and not asked:
            asked.append((path, b""))
            raise OSError("libgomp.so.1: cannot open shared object file: No such file or directory")
        asked.append((Path(path).name, Path(path).read_bytes() if path.endswith("libgomp.so.1") else b""))
        return type("Library", (), {"LGBM_GetLastError": type("Function", (), {})()})()

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(booster, "openmp_library", lambda: str(bundled))
    booster.library.__wrapped__()
    assert [name for name, _ in asked[1:]] == ["libgomp.so.1", "lib_lightgbm.so"]
    content = asked[1][1]
    assert len(content) == bundled.stat().st_size
    assert content.split(b"\0")[1] == b"libgomp.so.1" and b"libc.so.6\0" in content

    asked.clear()
    monkeypatch.setattr(booster, "openmp_library", lambda: None)
    with pytest.raises(BoosterError, match="libgomp1"):
        booster.library.__wrapped__()
