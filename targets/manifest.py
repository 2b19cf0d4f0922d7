"""Manifests of executables: one schema, one writer, and one reader that checks rules before any named file is opened.

A manifest is the JSON object in an executable's folder. It describes an entry point (inputs, outputs, sizes, memory and
steps) and shared facts (the target, the weights and the threads). A folder of several entry points has, under
`entries`, the own keys of each by name; these override the shared ones.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search_space.dtypes import numpy_dtype
from search_space.files import replace_file
from targets.base import Parameter
from targets.extents import extent_at, is_extent

MANIFEST = "manifest.json"
SCHEMA = "autotune.executable/3"
"""Name and version of the schema of all manifests; `kind` beside it names the class that loads the folder."""
SEAL = "sha256"
"""Key of the digest of all other keys but `threads`, which its owner may change."""
_EARLIER = {"autotune.network/2": "native", "autotune.cuda/2": "cuda"}
"""Schemas whose manifests lack `kind` and nothing else; kind by schema."""
MOST_ENTRIES = 16
"""Entry points of a folder at most: each repeats the shared keys, so a small file could stand for a large manifest."""
_MOST_BYTES = 1 << 40
_BITS = {"int": (8, 16, 32, 64), "uint": (8, 16, 32, 64), "float": (16, 32, 64), "bfloat": (16,)}
_DTYPES = {"bool", *(f"{kind}{bits}" for kind, sizes in _BITS.items() for bits in sizes)}


class ExecutableError(ValueError):
    """A folder that holds no network, or not a whole one, or arrays that it does not take."""


# ------------------------------------------------------------------ rules
@dataclass(frozen=True)
class Rule:
    """A condition on a value, and the words that state it in an error."""

    must: str
    keeps: Callable[[Any], bool]


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST_BYTES


def _is_file(value: Any) -> bool:
    plain = isinstance(value, str) and 0 < len(value) <= 255 and value not in (".", "..")
    return plain and not set(value) & set("/\\\0") and value.isprintable()


def _is_shape(value: Any) -> bool:
    listed = isinstance(value, list) and len(value) <= 32 and all(map(_is_size, value))
    return listed and math.prod(value) <= _MOST_BYTES // 8


TEXT = Rule("be a text", lambda value: isinstance(value, str))
SIZE = Rule("be an integer from 0 to 2**40", _is_size)
SHAPE = Rule("be a list of extents", _is_shape)
FILE = Rule("name a file of the folder", _is_file)
_THREADS = Rule("be 1 to 1024", lambda value: type(value) is int and 1 <= value <= 1024)
_DIGEST = Rule("be a SHA-256", lambda value: isinstance(value, str) and bool(re.fullmatch("[0-9a-f]{64}", value)))
_IDENTIFIER = Rule(
    "be an identifier of C",
    lambda value: isinstance(value, str) and bool(re.fullmatch(r"[A-Za-z_]\w{0,199}", value, re.A)),
)
TENSOR = {
    "name": TEXT,
    "shape": SHAPE,
    "dtype": Rule("be an element type", lambda value: isinstance(value, str) and value in _DTYPES),
}
HASHED_FILE = {"file": FILE, "sha256": _DIGEST}
WEIGHTS = {**HASHED_FILE, "nbytes": SIZE, "original_nbytes": SIZE}
_ENTRIES = Rule(
    f"be 1 to {MOST_ENTRIES} objects by name",
    lambda value: (
        isinstance(value, dict)
        and 1 <= len(value) <= MOST_ENTRIES
        and all(isinstance(own, dict) for own in value.values())
    ),
)
_COMMON: Mapping[str, Any] = {
    "name": _IDENTIFIER,
    "target": TEXT,
    "threads": _THREADS,
    "inputs": [TENSOR],
    "outputs": [TENSOR],
    "weights": WEIGHTS,
    "memory": {"arena_bytes": SIZE},
    "steps": [{"title": TEXT, "workload": TEXT, "kernel": TEXT}],
}


@dataclass(frozen=True)
class Format:
    """Rules of the manifests of one kind of executable.

    Attributes:
        kind: value of the key `kind`.
        rules: key → a `Rule`, a list with the rule of all its items, or an object of such keys. They add to or replace
            the rules of all manifests, see `_COMMON`.
        fit: function that checks parts of a manifest against each other, and raises `ExecutableError`.
    """

    kind: str
    rules: Mapping[str, Any]
    fit: Callable[[Mapping[str, Any]], object] = lambda manifest: None


def _hold(rule: Any, value: Any, at: str) -> None:
    """Checks a value and its parts against a rule, a list with the rule of all items, or an object of keys."""
    if isinstance(rule, Rule):
        if not rule.keeps(value):
            raise ExecutableError(f"`{at}` must {rule.must}, but got {at}={value!r:.80}")
    elif isinstance(rule, list):
        if not isinstance(value, list):
            raise ExecutableError(f"`{at}` must be a list, but got {at}={value!r:.80}")
        for number, item in enumerate(value):
            _hold(rule[0], item, f"{at}[{number}]")
    else:
        if not isinstance(value, dict):
            raise ExecutableError(f"`{at}` must be an object, but got {at}={value!r:.80}")
        for key, inner in rule.items():
            if key not in value:
                raise ExecutableError(f"`{at}` must have the key {key}, but it has {', '.join(value) or 'none':.200}")
            _hold(inner, value[key], f"{at}.{key}")


def tensor_bytes(tensor: Mapping[str, Any]) -> int:
    """Returns the bytes of an input or output that a manifest lists."""
    return int(math.prod(tensor["shape"]) * numpy_dtype(tensor["dtype"]).itemsize)


# ------------------------------------------------------------------ files
def read_sealed(folder: Path) -> dict[str, Any]:
    """Reads a manifest and verifies its schema and its seal; its other keys are not checked yet.

    Raises:
        ExecutableError: the folder has no manifest, it has another schema, or it was changed after it was written.
    """
    path = folder / MANIFEST
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ExecutableError(f"{path}: a network must have a manifest, but: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ExecutableError(f"{path}: a manifest must be JSON, but it is not") from None
    if not isinstance(data, dict):
        raise ExecutableError(f"{path}: a manifest must be an object, but got {type(data).__name__}")
    schema = data.get("schema")
    if schema != SCHEMA and not (isinstance(schema, str) and schema in _EARLIER):
        raise ExecutableError(
            f"{path}: a manifest must be of schema {SCHEMA}, but got {schema!s:.80}; compile the model again for one"
        )
    if data.get(SEAL) != _seal(data):
        raise ExecutableError(f"{path}: a manifest must be as it was written, but its digest is of another one")
    if schema == SCHEMA:
        return data
    return {"schema": SCHEMA, "kind": _EARLIER[schema], **{key: data[key] for key in data if key != "schema"}}


def read_manifest(folder: Path, form: Format, entry: str | None = None) -> dict[str, Any]:
    """Reads and checks the manifest of an executable.

    Args:
        folder: folder of the executable.
        form: rules that it must keep.
        entry: name of the entry point; None: the only one.

    Returns:
        The keys of the entry point, and the shared ones.

    Raises:
        ExecutableError: the manifest is missing, of another kind, or has invalid values.
    """
    data, kind = read_sealed(folder), Rule(f"be {form.kind}", lambda value: bool(value == form.kind))
    try:
        own = _select_entry(data, entry)
        _hold({"kind": kind, **_COMMON, **form.rules}, own, "manifest")
        _hold_sizes(own)
        form.fit(own)
    except ExecutableError as error:
        raise ExecutableError(f"{folder / MANIFEST}: {error}") from None
    return own


def _select_entry(manifest: Mapping[str, Any], entry: str | None) -> dict[str, Any]:
    """Merges the keys of an entry point with the shared ones."""
    shared = {key: value for key, value in manifest.items() if key != "entries"}
    own: Mapping[str, Any] = {}
    if "entries" in manifest:
        _hold(_ENTRIES, manifest["entries"], "manifest.entries")
        own = manifest["entries"]
    if (entry is None) == bool(own) or (entry is not None and entry not in own):
        shown = ", ".join(own) or "left out, as there is one"
        raise ExecutableError(f"`entry` must be {shown:.200}, but got entry={entry!r}")
    return shared if entry is None else {**shared, **own[entry]}


def write_manifest(manifest: Mapping[str, Any], folder: Path) -> None:
    """Writes a manifest with its schema and seal, whole or not at all."""
    data = {"schema": SCHEMA, **{key: value for key, value in manifest.items() if key not in ("schema", SEAL)}}
    replace_file(folder / MANIFEST, (json.dumps({**data, SEAL: _seal(data)}, indent=2) + "\n").encode())


def list_files(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Lists the files of a network besides its manifest, each with its digest."""
    listed = [manifest["weights"], *manifest.get("files", ()), *manifest.get("modules", ())]
    return list(dict.fromkeys((item["file"], item["sha256"]) for item in listed))


def _seal(manifest: Mapping[str, Any]) -> str:
    kept = {key: value for key, value in manifest.items() if key not in (SEAL, "threads")}
    return digest(json.dumps(kept, sort_keys=True).encode())


def digest(*parts: bytes | memoryview) -> str:
    """Computes the digest by which a manifest identifies a file, from the file's parts in order."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()


def contents(path: Path, sha256: str) -> bytes:
    """Reads a file of a network and verifies its digest.

    Raises:
        ExecutableError: it is missing, or another one than the manifest's.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ExecutableError(f"{path}: a network must have all of its files, but: {error.strerror}") from None
    if digest(data) != sha256:
        raise ExecutableError(f"{path}: a file of a network must be that of the manifest, but it differs from it")
    return data


def describe_parameter(parameter: Parameter) -> dict[str, Any]:
    """Converts a parameter to its form in manifests."""
    found = {"name": parameter.name, "shape": list(parameter.shape), "dtype": parameter.dtype}
    return {**found, "extents": list(parameter.extents)} if parameter.extents else found


def read_parameters(items: Sequence[Mapping[str, Any]]) -> tuple[Parameter, ...]:
    """Converts items of a manifest to parameters."""
    return tuple(
        Parameter(item["name"], tuple(item["shape"]), item["dtype"], extents=tuple(item.get("extents", ())))
        for item in items
    )


def read_sizes(manifest: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Returns least and greatest value of each open size of a network, by name."""
    return {name: (low, high) for name, (low, high) in manifest.get("sizes", {}).items()}


def _hold_sizes(manifest: Mapping[str, Any]) -> None:
    """Checks sizes, and the extents that refer to them.

    Raises:
        ExecutableError: a size or an extent is invalid.
    """
    sizes = manifest.get("sizes", {})
    ranges = isinstance(sizes, dict) and all(isinstance(s, list) and len(s) == 2 for s in sizes.values())
    if not ranges or not all(_is_size(low) and _is_size(high) and 0 < low <= high for low, high in sizes.values()):
        raise ExecutableError(f"`manifest.sizes` must be ranges by name, but got {sizes!r:.80}")
    greatest = {name: high for name, (_, high) in sizes.items()}
    for what in ("inputs", "outputs"):
        for tensor in manifest[what]:
            extents = tensor.get("extents", tensor["shape"])
            if not isinstance(extents, list) or not all(is_extent(extent, greatest) for extent in extents):
                raise ExecutableError(f"`extents` of {tensor['name']} must be of the sizes, but got {extents!r:.80}")
            if [extent_at(extent, greatest) for extent in extents] != tensor["shape"]:
                shown = f"{tensor['shape']}, but got {extents!r:.80}"
                raise ExecutableError(f"`extents` of {tensor['name']} must be its shape at the largest sizes, {shown}")
