"""The manifest of a network's folder: what it has, held against rules before anything that it names is read or run."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search_space.dtypes import numpy_dtype
from targets.base import Parameter
from targets.cuda.driver import NETWORK_SCHEMA as CUDA_SCHEMA
from targets.network_library import SCHEMA as NETWORK_SCHEMA

STEPWISE_SCHEMA = "autotune.stepwise/2"
SCHEMAS = (NETWORK_SCHEMA, CUDA_SCHEMA, STEPWISE_SCHEMA)
MANIFEST = "manifest.json"
SEAL = "sha256"
"""Key of the digest of all other keys but `threads`, which its owner may change."""
_MOST_BYTES = 1 << 40
_NAME = re.compile(r"[A-Za-z_]\w{0,199}", re.A)
_BITS = {"int": (8, 16, 32, 64), "uint": (8, 16, 32, 64), "float": (16, 32, 64), "bfloat": (16,)}
_DTYPES = {"bool", *(f"{kind}{bits}" for kind, sizes in _BITS.items() for bits in sizes)}


class ExecutableError(ValueError):
    """A folder that holds no network, or not a whole one, or arrays that it does not take."""


# ------------------------------------------------------------------ rules
@dataclass(frozen=True)
class Rule:
    """What a value must do, as a sentence, and whether it does."""

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


_TEXT = Rule("be a text", lambda value: isinstance(value, str))
_SIZE = Rule("be an integer from 0 to 2**40", _is_size)
_THREADS = Rule("be 1 to 1024", lambda value: type(value) is int and 1 <= value <= 1024)
_FILE = Rule("name a file of the folder", _is_file)
_DIGEST = Rule("be a SHA-256", lambda value: isinstance(value, str) and bool(re.fullmatch("[0-9a-f]{64}", value)))
_IDENTIFIER = Rule(
    "be an identifier of C",
    lambda value: isinstance(value, str) and bool(re.fullmatch(r"[A-Za-z_]\w{0,199}", value, re.A)),
)
_GRID = Rule("be three extents", lambda value: _is_shape(value) and len(value) == 3)
_SPACES = ("input", "output", "weights", "packed", "arena", "workspace")
_PLACE = Rule(
    "be a space, a number and an offset",
    lambda value: isinstance(value, list) and len(value) == 3 and value[0] in _SPACES and all(map(_is_size, value[1:])),
)
_TENSOR = {
    "name": _TEXT,
    "shape": Rule("be a list of extents", _is_shape),
    "dtype": Rule("be an element type", lambda value: isinstance(value, str) and value in _DTYPES),
}
_HASHED = {"file": _FILE, "sha256": _DIGEST}
_LAUNCH = {
    "module": _SIZE,
    "name": _TEXT,
    "grid": _GRID,
    "block": _GRID,
    "dynamic_shared_bytes": _SIZE,
    "tensor_maps": [{"argument": _SIZE}],
    "arguments": [_PLACE],
}
_COMMON = {
    "name": _IDENTIFIER,
    "target": _TEXT,
    "threads": _THREADS,
    "inputs": [_TENSOR],
    "outputs": [_TENSOR],
    "weights": {**_HASHED, "nbytes": _SIZE, "original_nbytes": _SIZE},
    "steps": [{"title": _TEXT, "workload": _TEXT, "kernel": _TEXT}],
}
_RULES: Mapping[str, Mapping[str, Any]] = {
    NETWORK_SCHEMA: {
        **_COMMON,
        "files": [_HASHED],
        "memory": {"arena_bytes": _SIZE, "shared_bytes": _SIZE, "scratch_bytes": _SIZE},
    },
    CUDA_SCHEMA: {
        **_COMMON,
        "arch": _TEXT,
        "modules": [_HASHED],
        "packing": [_LAUNCH],
        "launches": [[_LAUNCH]],
        "memory": {"arena_bytes": _SIZE, "packed_bytes": _SIZE, "workspace_bytes": _SIZE},
    },
    STEPWISE_SCHEMA: {
        **_COMMON,
        "name": _TEXT,
        "device": _TEXT,
        "outputs": [{**_TENSOR, "value": _TEXT}],
        "weights": {**_COMMON["weights"], "names": [_TEXT]},  # type: ignore[dict-item]
        "modules": [{**_HASHED, "target": _TEXT}],
        "steps": [
            {"title": _TEXT, "workload": _TEXT, "kernel": _FILE, "target": _TEXT, "inputs": [_TEXT], "output": _TEXT}
        ],
        "memory": {"arena_bytes": _SIZE},
    },
}


def _hold(rule: Any, value: Any, at: str) -> None:
    """Holds a value, and what is in it, against a rule, a list of which all items keep one, or an object of keys."""
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


def _fit(data: Mapping[str, Any]) -> None:
    """Holds what one part of a manifest says against the others."""
    if data["schema"] == NETWORK_SCHEMA:
        files = [item["file"] for item in data["files"]]
        if f"{data['name']}.so" not in files and not any(file.endswith(".o") for file in files):
            raise ExecutableError(
                f"`files` must have {data['name']}.so or objects, but got {', '.join(files) or 'none'}"
            )
    elif data["schema"] == CUDA_SCHEMA:
        if len(data["launches"]) != len(data["steps"]):
            steps, launches = len(data["steps"]), len(data["launches"])
            raise ExecutableError(f"`launches` must be of {steps} steps, but got those of {launches}")
        for launch in [*data["packing"], *(launch for step in data["launches"] for launch in step)]:
            _fit_launch(launch, data)
    else:
        _fit_steps(data)


def _fit_launch(launch: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    memory = data["memory"]
    most = {"weights": data["weights"]["nbytes"]}
    most |= {space: memory[f"{space}_bytes"] for space in ("packed", "arena", "workspace")}
    tensors = {"input": data["inputs"], "output": data["outputs"]}
    if launch["module"] >= len(data["modules"]):
        raise ExecutableError(f"`module` must be one of {len(data['modules'])}, but got module={launch['module']}")
    if any(facts["argument"] >= len(launch["arguments"]) for facts in launch["tensor_maps"]):
        raise ExecutableError(f"`tensor_maps` must be of arguments of {launch['name']}, but got others")
    for space, number, beyond in launch["arguments"]:
        if space in tensors:
            right = number < len(tensors[space]) and beyond <= _nbytes(tensors[space][number])
        else:
            right = number + beyond <= most[space]
        if not right:
            raise ExecutableError(f"arguments must lie in the network, but got {[space, number, beyond]}")


def _fit_steps(data: Mapping[str, Any]) -> None:
    files = {module["file"] for module in data["modules"]}
    known = {*data["weights"]["names"], *(item["name"] for item in data["inputs"])}
    for step in data["steps"]:
        if step["kernel"] not in files:
            raise ExecutableError(f"`kernel` must be a file of a module, but got kernel={step['kernel']!r}")
        for name in step["inputs"]:
            if name not in known:
                raise ExecutableError(f"`inputs` must be there before their step, but got {name!r}")
        known.add(step["output"])
    for item in data["outputs"]:
        if item["value"] not in known:
            raise ExecutableError(f"`value` must be what a step computes, but got value={item['value']!r}")


def _nbytes(tensor: Mapping[str, Any]) -> int:
    return int(math.prod(tensor["shape"]) * numpy_dtype(tensor["dtype"]).itemsize)


# ------------------------------------------------------------------ files
def read_manifest(folder: Path, *schemas: str) -> dict[str, Any]:
    """The manifest of a network.

    Raises:
        ExecutableError: there is none, none of these schemas, or one that says what cannot be.
    """
    path = folder / MANIFEST
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ExecutableError(f"{path}: a network must have a manifest, but: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ExecutableError(f"{path}: a manifest must be JSON, but it is not") from None
    if not isinstance(data, dict) or data.get("schema") not in schemas:
        got = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise ExecutableError(f"{path}: a manifest must be of schema {' or '.join(schemas)}, but got {got!s:.80}")
    try:
        _hold(_RULES[data["schema"]], data, "manifest")
        if data.get(SEAL) != _seal(data):
            raise ExecutableError("a manifest must be as it was written, but its digest is of another one")
        _fit(data)
    except ExecutableError as error:
        raise ExecutableError(f"{path}: {error}") from None
    return data


def write_manifest(manifest: Mapping[str, Any], folder: Path) -> None:
    """Writes a manifest with its seal, whole or not at all."""
    data = {**manifest, SEAL: _seal(manifest)}
    replace_file(folder / MANIFEST, (json.dumps(data, indent=2) + "\n").encode())


def _seal(manifest: Mapping[str, Any]) -> str:
    kept = {key: value for key, value in manifest.items() if key not in (SEAL, "threads")}
    return digest(json.dumps(kept, sort_keys=True).encode())


def replace_file(path: Path, data: bytes | memoryview) -> None:
    """Writes a file whole or not at all; who has the one before it open or mapped keeps that."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def digest(data: bytes | memoryview) -> str:
    """By which a manifest knows its files."""
    return hashlib.sha256(data).hexdigest()


def contents(path: Path, sha256: str) -> bytes:
    """A file of a network.

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


def listed(parameter: Parameter) -> dict[str, Any]:
    """A parameter as manifests have it."""
    return {"name": parameter.name, "shape": list(parameter.shape), "dtype": parameter.dtype}


def parameters_of(items: Sequence[Mapping[str, Any]]) -> tuple[Parameter, ...]:
    """What a manifest lists."""
    return tuple(Parameter(item["name"], tuple(item["shape"]), item["dtype"]) for item in items)
