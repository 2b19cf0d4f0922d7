"""A linked network in this process. Nothing of the compiler is imported where there is a shared object."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path

SCHEMA = "autotune.network/2"
"""Of the manifest of a linked network."""
_LINKED: list[object] = []
_LIBRARIES: dict[str, ctypes.CDLL] = {}
"""Shared objects that were loaded, by digest: threads of their pools run in them for as long as the process lives."""
_LOCK = threading.Lock()
_NUMBERS = count(1)


class NetworkLibrary:
    """The functions of a linked network, from its shared object, or from its objects where nothing could link them.

    Any number of threads may call them at a time, each with arrays and a workspace of its own.

    Args:
        name: of the network.
        files: contents of what `link` wrote, by name: the shared object, or all objects.

    Raises:
        OSError: the system does not take the shared object, or it lacks a function.
    """

    def __init__(self, name: str, files: Mapping[str, bytes]) -> None:
        call = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p]
        time = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32]
        kinds = {name: call, f"{name}_profile": [*call, ctypes.c_void_p]}
        kinds["autotune_time"] = [*time, ctypes.c_void_p, ctypes.c_void_p]
        if f"{name}.so" in files:
            library = _loaded(files[f"{name}.so"])
            addresses = {symbol: function_at(library, symbol) for symbol in kinds}
        else:
            addresses = self._linked([files[file] for file in files if file.endswith(".o")], list(kinds))
        self.address = addresses[name]
        self.run, self.profile, self.time = (
            ctypes.CFUNCTYPE(None, *kinds[symbol])(addresses[symbol]) for symbol in kinds
        )

    def _linked(self, objects: Sequence[bytes], symbols: Sequence[str]) -> dict[str, int]:
        from targets.cpu.runtime import initialise
        from targets.jit import LinkedObjects

        initialise()
        linked = LinkedObjects(objects, symbols)
        _LINKED.append(linked)  # the threads of its pool run in it
        return {symbol: linked.address(symbol) for symbol in symbols}


def replaced(folder: Path, write: Callable[[Path], list[str]]) -> list[dict[str, str]]:
    """Files with their digests, written elsewhere first: those that were there before are replaced, not changed.

    Args:
        folder: where they come to lie.
        write: writes files to a folder; their names.
    """
    with tempfile.TemporaryDirectory(prefix=".link-", dir=folder) as place:
        found = []
        for file in write(Path(place)):
            found.append({"file": file, "sha256": hashlib.sha256((Path(place) / file).read_bytes()).hexdigest()})
            (Path(place) / file).replace(folder / file)
    return found


def _loaded(data: bytes) -> ctypes.CDLL:
    """A shared object by its contents: the system knows those it has loaded by path, whatever lies there meanwhile."""
    key = hashlib.sha256(data).hexdigest()
    with _LOCK:
        if key not in _LIBRARIES:
            _LIBRARIES[key] = opened(data)
        return _LIBRARIES[key]


def opened(data: bytes) -> ctypes.CDLL:
    """A shared object, loaded once more whoever has it already."""
    return _from_memory(data) if hasattr(os, "memfd_create") else _from_copy(data)


def _from_memory(data: bytes) -> ctypes.CDLL:
    descriptor = os.memfd_create("autotune-network", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        # numbers of descriptors are used again, and a path must not be: so each has its own spelling
        spelling = "".join("/." if bit == "1" else "/" for bit in f"{next(_NUMBERS):b}")
        return ctypes.CDLL(f"/proc/self/fd{spelling}/{descriptor}")
    finally:
        os.close(descriptor)


def _from_copy(data: bytes) -> ctypes.CDLL:
    folder = tempfile.mkdtemp(prefix="autotune-")
    try:
        path = Path(folder) / f"network{next(_NUMBERS)}.so"
        path.write_bytes(data)
        return ctypes.CDLL(str(path))
    finally:
        shutil.rmtree(folder)


def function_at(library: ctypes.CDLL, symbol: str) -> int:
    """The address of a function.

    Raises:
        OSError: there is none of that name.
    """
    function = getattr(library, symbol, None)
    address = ctypes.cast(function, ctypes.c_void_p).value if function is not None else None
    if address is None:
        raise OSError(f"a shared object must have the function {symbol}, but it has not")
    return address
