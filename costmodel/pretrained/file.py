"""The file of a pretrained model: its trees as arrays, a fourteenth of the bytes of LightGBM's text."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.features.relative import RELATIVE_NAMES
from costmodel.models.errors import CostModelError
from costmodel.models.forest import MAX_LEAVES, Forest
from costmodel.models.lightgbm_residual import ResidualModel
from search_space.files import replacing

FORMAT = "autotune.pretrained/1"
KINDS = {"ends": np.int64, "features": np.int64, "thresholds": np.float32, "masks": np.int32, "leaves": np.float64}
"""Arrays of a forest, and the types that it computes with."""
STORED_TYPES = {**KINDS, "ends": np.int32, "features": np.int16, "leaves": np.float32}


def write(model: ResidualModel, targets: Iterable[str], path: Path) -> None:
    """Writes a fitted model; leaves are rounded to float32.

    Args:
        model: model to write.
        targets: names of the targets whose programs it has learned from.
        path: path that ends with `.npz`.

    Raises:
        CostModelError: the path ends otherwise.
    """
    if path.suffix != ".npz":
        raise CostModelError(f"a pretrained model must be written to a file that ends with .npz, but got {path.name!r}")
    kinds = ",".join(sorted({target.partition(":")[0] for target in targets}))
    arrays: dict[str, Any] = {name: getattr(model.forest, name).astype(kind) for name, kind in STORED_TYPES.items()}
    said = {"format": FORMAT, "targets": kinds, "names": "\n".join(RELATIVE_NAMES), "members": model.own()}
    arrays |= {name: np.array(text) for name, text in said.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read(path: Path) -> tuple[frozenset[str], ResidualModel]:
    """Reads the kinds of targets that a model has learned of, and the model. It never runs code of the file.

    Raises:
        CostModelError: the file is not a pretrained model, or is one on features that do not exist any more.
    """
    try:
        with np.load(path, allow_pickle=False) as data:
            contents = {name: data[name] for name in (*KINDS, "format", "targets", "names", "members")}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise CostModelError(
            f"{path}: a pretrained model must be what `autotune costmodel pretrain` wrote, but {error}"
        ) from None
    if str(contents["format"]) != FORMAT:
        raise CostModelError(f"{path}: `format` must be {FORMAT!r}, but got {str(contents['format'])!r}")
    if str(contents["names"]).split("\n") != list(RELATIVE_NAMES):
        raise CostModelError(
            f"{path}: a pretrained model must be of the features that there are, but was made of others"
        )
    forest = Forest(**{name: np.ascontiguousarray(contents[name], kind) for name, kind in KINDS.items()})
    members = str(contents["members"])
    nodes, trees = len(forest.features), len(forest.ends)
    complete = (
        members.isdigit()
        and int(members) > 0
        and forest.leaves.shape == (trees, MAX_LEAVES)
        and len(forest.thresholds) == len(forest.masks) == nodes
        and not (np.diff(forest.ends, prepend=0) < 0).any()
        and (not trees or forest.ends[-1] == nodes)
        and not (nodes and (forest.features.min() < 0 or forest.features.max() >= len(RELATIVE_NAMES)))
        and np.isfinite(forest.leaves).all()
    )
    if not complete:  # native code uses these numbers as indices
        raise CostModelError(f"{path}: the trees of a pretrained model must be whole, but these are not")
    return frozenset(str(contents["targets"]).split(",")), ResidualModel.of(forest, int(members))
