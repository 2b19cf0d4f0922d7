"""A linked network in this process. Nothing of the compiler is imported where there is a shared object."""

from __future__ import annotations

import ctypes
import hashlib
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path

from search_space.scratch import ScratchFolder

KIND = "native"
"""Kind of the manifest of a linked network."""
_LOCK = threading.Lock()
_NUMBERS = count(1)
_CLOSE = "autotune_close"


class NetworkLibrary:
    """The functions of a linked network, from its shared object, or from its objects where nothing could link them.

    Any number of threads may call them at a time, each with arrays and a workspace of its own. Once there is no
    reference to this library, nor to another one of the same shared object, the code is unloaded. Its threads end
    first.

    Args:
        name: name of the network.
        files: contents of the files of `link`, by name: the shared object, or all objects.

    Raises:
        OSError: the system does not take the shared object, or it lacks a function.
    """

    def __init__(self, name: str, files: Mapping[str, bytes]) -> None:
        call = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p]
        time = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32]
        kinds = {name: call, f"{name}_profile": [*call, ctypes.c_void_p]}
        kinds["autotune_time"] = [*time, ctypes.c_void_p, ctypes.c_void_p]
        if f"{name}.so" in files:
            loaded = shared_object(files[f"{name}.so"])
            addresses = {symbol: loaded.address(symbol) for symbol in kinds}
            self._code: object = loaded
        else:
            linked = _LinkedHere([files[file] for file in files if file.endswith(".o")], list(kinds))
            addresses, self._code = linked.addresses, linked
        self.address = addresses[name]
        self.run, self.profile, self.time = (
            ctypes.CFUNCTYPE(None, *kinds[symbol])(addresses[symbol]) for symbol in kinds
        )


class SharedObject:
    """A shared object, unloaded with the last reference to it."""

    def __init__(self, data: bytes) -> None:
        self.library = open_library(data)
        weakref.finalize(self, _unload, self.library._handle).atexit = False

    def address(self, symbol: str) -> int:
        """Returns the address of a function, which is valid as long as this object lives.

        Raises:
            OSError: the object has no function of that name.
        """
        return function_at(self.library, symbol)


class _LinkedHere:
    """Objects that are linked in this process, and released with the last reference to them."""

    def __init__(self, objects: Sequence[bytes], symbols: Sequence[str]) -> None:
        from targets.blas import blas_symbols
        from targets.jit import LinkedObjects

        linked = LinkedObjects(objects, [*symbols, _CLOSE], blas_symbols())
        self.addresses = {symbol: linked.address(symbol) for symbol in symbols}
        weakref.finalize(self, _close, linked, linked.address(_CLOSE)).atexit = False


def _unload(handle: int) -> None:
    """Lets the system unload a shared object, which ends its threads first."""
    ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(function_at(ctypes.CDLL(None), "dlclose"))(handle)


def _close(linked_objects: object, address: int) -> None:
    """Ends the threads that run in objects; these go with the last reference to them, which is the caller's."""
    ctypes.CFUNCTYPE(None)(address)()


def replace_files(folder: Path, write: Callable[[Path], list[str]]) -> list[dict[str, str]]:
    """Writes files elsewhere first and moves them to a folder; returns them with their digests.

    Files that were there before are replaced, not changed, so that processes that mapped them keep their contents.

    Args:
        folder: destination of the files.
        write: function that writes files to a folder and returns their names.
    """
    with tempfile.TemporaryDirectory(prefix=".link-", dir=folder) as staging:
        files = []
        for file in write(Path(staging)):
            files.append({"file": file, "sha256": hashlib.sha256((Path(staging) / file).read_bytes()).hexdigest()})
            (Path(staging) / file).replace(folder / file)
    return files


def shared_object(data: bytes) -> SharedObject:
    """Loads a shared object by its contents, once; the system itself identifies loaded ones by path."""
    key = hashlib.sha256(data).hexdigest()
    with _LOCK:
        found = _LIBRARIES.get(key)
        if found is None:
            found = _LIBRARIES[key] = SharedObject(data)
        return found


_LIBRARIES: weakref.WeakValueDictionary[str, SharedObject] = weakref.WeakValueDictionary()
"""Shared objects that are loaded, by digest."""


def open_library(data: bytes) -> ctypes.CDLL:
    """Loads a shared object anew, even if it is loaded already."""
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
    with ScratchFolder("library") as folder:
        path = Path(folder) / f"network{next(_NUMBERS)}.so"
        path.write_bytes(data)
        return ctypes.CDLL(str(path))


def function_at(library: ctypes.CDLL, symbol: str) -> int:
    """Returns the address of a function.

    Raises:
        OSError: the library has no function of that name.
    """
    function = getattr(library, symbol, None)
    address = ctypes.cast(function, ctypes.c_void_p).value if function is not None else None
    if address is None:
        raise OSError(f"a shared object must have the function {symbol}, but it has not")
    return address
