"""Folders of executables: a manifest, the files that it lists, and weights, for one entry point or several.

An executable with one entry point is a folder of its own. Entry points that share weights, as those of a language model
do, are written by `write_entries` to one folder and loaded as `Executable(folder, entry=name)`.
"""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from search_space.files import replace_file
from targets.arrays import allocate_aligned
from targets.calling import Array
from targets.manifest import SEAL, ExecutableError, contents, digest, list_files, write_manifest

if TYPE_CHECKING:  # it imports this module
    from targets.executable import Executable

WEIGHTS = "weights"
"""File of the weights of several entry points."""
_SHARED = ("schema", "target", "threads", "weights", SEAL)
"""Keys that are not an entry point's own."""


def writable(folder: str | os.PathLike[str]) -> Path:
    """Makes a folder if it is missing, and returns its path.

    Raises:
        ExecutableError: the folder cannot be written.
    """
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExecutableError(f"`folder` must be one that can be written, but got {path}: {error.strerror}") from None
    return path


def copy_files(manifest: Mapping[str, Any], source: Path, folder: Path) -> None:
    """Writes the files that a manifest lists, weights excepted, to another folder.

    Raises:
        ExecutableError: a file of `source` is missing, or another one than the manifest's.
    """
    for file, sha256 in list_files(manifest):
        if file != manifest["weights"]["file"]:
            replace_file(folder / file, contents(source / file, sha256))


def write_entries(entries: Mapping[str, Executable], weights: Array, kind: str, folder: Path) -> None:
    """Writes executables as the entry points of one folder, with one file of weights.

    Args:
        entries: executable by the name of its entry point; the weights of each are the first bytes of `weights`.
        weights: bytes (n,) of the executable that has most.
        kind: value of the manifest's key `kind`, by which `autotune.load` finds the loader of the folder.
        folder: folder to write to.

    Raises:
        ExecutableError: two executables have a file of the same name, or a file was replaced by another network's.
    """
    files = [file for each in entries.values() for file, _ in list_files(each.manifest)]
    if same := {file for file in files if file != WEIGHTS and files.count(file) > 1}:
        raise ExecutableError(f"`entries` must have files of their own, but two have {', '.join(sorted(same))}")
    for each in entries.values():
        copy_files(each.manifest, each.folder, folder)
    manifests = {name: each.manifest for name, each in entries.items()}
    most = max(manifests.values(), key=lambda manifest: int(manifest["weights"]["nbytes"]))
    facts = {**most["weights"], "file": WEIGHTS}
    replace_file(folder / WEIGHTS, weights[: facts["nbytes"]].data)
    own = {name: {key: each[key] for key in each if key not in _SHARED} for name, each in manifests.items()}
    shared = {"kind": kind, "target": most["target"], "threads": most["threads"], "weights": facts}
    write_manifest({**shared, "entries": own}, folder)


def read_weights(path: Path, size: int, sha256: str, mapped: bool) -> Array:
    """Reads a file of weights to a 64-byte boundary, or maps its pages.

    Args:
        path: path of the file.
        size: expected bytes of the file; nothing is allocated if the file has another size.
        sha256: expected digest of the file.
        mapped: whether the bytes are pages of the file, which processes share.

    Returns:
        Bytes (n,): at least 64 of them where they are not mapped.

    Raises:
        ExecutableError: a file that is missing, or another one than the manifest's.
    """
    try:
        with path.open("rb", buffering=0) as file:
            complete = os.fstat(file.fileno()).st_size == size
            data = _contents(file, size, mapped) if complete else np.zeros(0, np.uint8)
    except OSError as error:
        raise ExecutableError(f"{path}: a network must have its weights, but: {error.strerror}") from None
    if not complete or digest(data[:size].data) != sha256:
        raise ExecutableError(f"{path}: weights must be those of the manifest, but they differ from it")
    return data


def join_weights(parts: Sequence[Array] | Array, size: int) -> Array:
    """Joins parts (n,) of weights to one array, as `read_weights` gives it; one that is an array stays as it is.

    Raises:
        ExecutableError: an array that is too small or begins elsewhere than on a 64-byte boundary.
    """
    if isinstance(parts, np.ndarray):
        if parts.nbytes < max(64, size) or parts.ctypes.data % 64:
            raise ExecutableError(
                f"`weights` must be at least {max(64, size)} bytes from a multiple of 64, but got {parts.nbytes} bytes "
                f"at {parts.ctypes.data}"
            )
        return parts
    data = allocate_aligned((max(64, size),), "uint8")
    np.concatenate([np.empty(0, np.uint8), *parts], out=data[:size])
    return data


def _contents(file: io.FileIO, size: int, mapped: bool) -> Array:
    """Reads or maps the bytes of a file."""
    if mapped and size:
        return np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), np.uint8)
    data = allocate_aligned((max(64, size),), "uint8")
    rest = data[:size].data
    while got := file.readinto(rest):  # at most 2 GiB at a time
        rest = rest[got:]
    return data
