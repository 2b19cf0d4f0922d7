"""Boosting through LightGBM's documented C interface.

The Python package imports scikit-learn and SciPy, which takes a second of every run. It does not load on systems
without libgomp.so.1, although a wheel contains one.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.metadata
import importlib.util
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.models.errors import CostModelError
from costmodel.models.forest import MAX_LEAVES
from search_space.extras import require
from search_space.scratch import ScratchFolder

Objective = Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]]
"""Function from scores of the rows to gradient and curvature of each, (rows,)."""

NO_TREES = "tree"
"""Text of a model without trees: LightGBM refuses data in which no feature varies."""
LEAST_TREES = 8  # trees that even a few programs get

_FLOAT32, _ROW_MAJOR, _SPLIT_IMPORTANCE = 0, 1, 0  # arguments as in LightGBM's c_api.h
_SONAME = b"libgomp.so.1"


class BoosterError(RuntimeError):
    """LightGBM refused, or its library does not load."""


@cache
def library() -> ctypes.CDLL:
    """Loads LightGBM's native library.

    Raises:
        MissingExtra: the package is not installed.
        BoosterError: its library does not load, or its OpenMP runtime is missing.
    """
    require("a cost model of trees", "lightgbm")
    spec = importlib.util.find_spec("lightgbm")
    if spec is None or not spec.submodule_search_locations:
        raise BoosterError("`lightgbm` must be a package with a native library, but got a module alone")
    path = Path(spec.submodule_search_locations[0]) / "lib" / "lib_lightgbm.so"
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        if _SONAME.decode() not in str(error):
            raise BoosterError(f"`lightgbm` must have a native library that loads, but got: {error}") from error
        _provide_openmp(error)
        loaded = ctypes.CDLL(str(path))
    loaded.LGBM_GetLastError.restype = ctypes.c_char_p
    return loaded


def openmp_library() -> str | None:
    """Finds the path or soname of LightGBM's OpenMP runtime: the system's, or one inside a wheel."""
    found = ctypes.util.find_library("gomp")
    if found:
        return found
    for package in ("scikit-learn", "lightgbm"):
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if Path(str(file)).name.startswith("libgomp"):
                return str(file.locate())
    return None


def _provide_openmp(cause: OSError) -> None:
    """Loads a wheel's OpenMP runtime under the name by which LightGBM asks for the system's.

    Wheels rename the libraries they bundle. The loader compares the name inside the file, so a copy with that name
    works.
    """
    path = openmp_library()
    if path is None or not Path(path).is_file():
        raise BoosterError(f"`lightgbm` must find an OpenMP runtime such as libgomp1, but got: {cause}") from cause
    content = Path(path).read_bytes()
    renamed = content.replace(Path(path).name.encode() + b"\0", _SONAME.ljust(len(Path(path).name), b"\0") + b"\0")
    with ScratchFolder("openmp") as folder:
        copy = Path(folder) / _SONAME.decode()
        copy.write_bytes(renamed)
        ctypes.CDLL(str(copy))


def make_options(seed: int, leaves: int, learning_rate: float, feature_share: float, bins: int) -> dict[str, Any]:
    """Returns LightGBM's options for deterministic boosting, on one thread, to trees that `forest.Forest` supports.

    Args:
        seed: seed of the sampling of features.
        leaves: most leaves of a tree.
        learning_rate: share of a leaf's step that is taken.
        feature_share: share of the features that a tree chooses from.
        bins: most values of a feature that are distinguished.

    Raises:
        ValueError: the number of leaves is out of range.
    """
    if not 2 <= leaves <= MAX_LEAVES:
        raise ValueError(f"`leaves` must be from 2 to {MAX_LEAVES}, but got leaves={leaves}")
    return {
        "num_leaves": leaves,
        "learning_rate": learning_rate,
        "feature_fraction": feature_share,
        "max_bin": bins,
        "min_data_in_leaf": 3,
        "min_data_in_bin": 1,
        "min_sum_hessian_in_leaf": 1e-3,
        "enable_bundle": False,
        "feature_pre_filter": False,
        "use_missing": False,
        "num_threads": 1,
        "deterministic": True,
        "force_col_wise": True,
        "seed": seed,
        "verbose": -1,
    }


def check_text(text: str, features: int, path: Path) -> None:
    """Refuses a text that is not a LightGBM model on so many features.

    Raises:
        CostModelError: the text is not such a model; names its path.
    """
    if text.strip() == NO_TREES:
        return
    found = re.search(r"^max_feature_idx=(\d+)$", text, re.MULTILINE)
    whole = text.startswith("tree\n") and "\nend of trees\n" in text
    if not whole or found is None or int(found[1]) + 1 != features:
        got = f"{int(found[1]) + 1} features" if whole and found is not None else "no such text"
        raise CostModelError(f"{path}: a saved model must be LightGBM's text on {features} features, but got {got}")


def trees_for(programs: int, most: int) -> int:
    """Chooses the number of trees for so many programs: half as many, from 8 to `most`."""
    return min(most, max(LEAST_TREES, programs // 2))


def boost(
    rows: NDArray[np.float32],
    objective: Objective,
    parameters: Mapping[str, Any],
    trees: int,
) -> str:
    """Trains a model and returns it in LightGBM's text format; `NO_TREES` where no feature varies.

    Args:
        rows: features, (rows, features).
        objective: called before each tree.
        parameters: options of LightGBM, by their documented names.
        trees: number of trees to train.

    Raises:
        BoosterError: LightGBM refused the data, for the reason that it states.
    """
    rows = np.ascontiguousarray(rows, np.float32)
    if (rows == rows[0]).all():
        return NO_TREES
    texts = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in parameters.items()}
    options = " ".join(f"{k}={v}" for k, v in {**texts, "objective": "none"}.items()).encode()
    data, booster = ctypes.c_void_p(), ctypes.c_void_p()
    _call(
        "LGBM_DatasetCreateFromMat",
        ctypes.c_void_p(rows.ctypes.data),
        _FLOAT32,
        ctypes.c_int32(rows.shape[0]),
        ctypes.c_int32(rows.shape[1]),
        _ROW_MAJOR,
        options,
        None,
        ctypes.byref(data),
    )
    try:
        _call("LGBM_BoosterCreate", data, options, ctypes.byref(booster))
        try:
            for _ in range(trees):
                if _grow(booster, objective, len(rows)):
                    break
            return _text(booster)
        finally:
            _call("LGBM_BoosterFree", booster)
    finally:
        _call("LGBM_DatasetFree", data)


def _grow(booster: ctypes.c_void_p, objective: Objective, count: int) -> bool:
    """Adds a tree; returns whether LightGBM could not grow one."""
    scores = np.empty(count)
    length, finished = ctypes.c_int64(), ctypes.c_int()
    _call(
        "LGBM_BoosterGetPredict",
        booster,
        0,
        ctypes.byref(length),
        scores.ctypes.data_as(ctypes.POINTER(ctypes.c_double)),
    )
    gradient, curvature = (np.ascontiguousarray(values, np.float32) for values in objective(scores))
    _call(
        "LGBM_BoosterUpdateOneIterCustom",
        booster,
        ctypes.c_void_p(gradient.ctypes.data),
        ctypes.c_void_p(curvature.ctypes.data),
        ctypes.byref(finished),
    )
    return bool(finished.value)


def _text(booster: ctypes.c_void_p) -> str:
    length = ctypes.c_int64(1 << 16)
    while True:
        room = ctypes.create_string_buffer(length.value)
        size = ctypes.c_int64()
        _call("LGBM_BoosterSaveModelToString", booster, 0, -1, _SPLIT_IMPORTANCE, length, ctypes.byref(size), room)
        if size.value <= length.value:
            return room.value.decode()
        length = size


def _call(name: str, *arguments: Any) -> None:
    loaded = library()
    if getattr(loaded, name)(*arguments):
        raise BoosterError(f"LightGBM must accept the data, but {name} said: {loaded.LGBM_GetLastError().decode()}")
