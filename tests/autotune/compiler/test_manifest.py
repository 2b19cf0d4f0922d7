"""Manifests and files of a network that are not as they were written: refused in a sentence, before anything runs."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import autotune
from autotune.compiler.executable.loading import kinds, load_manifest
from targets import network_library
from targets.manifest import MANIFEST, MOST_ENTRIES, SCHEMA, SEAL, ExecutableError, _seal, read_manifest, write_manifest
from targets.native_executable import NativeExecutable
from tests.autotune.compiler.test_compile import compile_into
from tests.autotune.compiler.test_executable import make_two_layers
from tests.autotune.graph.nets import feeds

KINDS = tuple(each.format.kind for each in kinds())
STEPWISE = {
    "threads": 2,
    "steps": [{"title": "matmul", "workload": "w", "kernel": "k"}],
    "weights": {"file": "n.weights", "nbytes": 64, "sha256": "0" * 64, "original_nbytes": 64},
    "inputs": [{"name": "x", "shape": [2, 3], "dtype": "float32"}],
    "outputs": [{"name": "y", "shape": [6], "dtype": "float32", "value": "v"}],
    "name": "n",
    "target": "cpu",
}
LAUNCH = {
    "module": 0,
    "name": "n_kernel0",
    "grid": [1, 1, 1],
    "block": [32, 1, 1],
    "dynamic_shared_bytes": 0,
    "tensor_maps": [{"argument": 1}],
    "arguments": [["input", 0, 0], ["weights", 0, 0], ["arena", 64, 0], ["output", 0, 0]],
}
EXPECTED: dict[str, dict[str, Any]] = {
    KINDS[0]: {
        **STEPWISE,
        "files": [{"file": "n.so", "sha256": "0" * 64}],
        "memory": {"arena_bytes": 128, "shared_bytes": 0, "scratch_bytes": 0},
    },
    KINDS[1]: {
        **STEPWISE,
        "arch": "sm_90",
        "modules": [{"file": "n_kernel0.cubin", "sha256": "0" * 64}],
        "packing": [],
        "launches": [[LAUNCH]],
        "memory": {"arena_bytes": 128, "packed_bytes": 0, "workspace_bytes": 0},
    },
    KINDS[2]: {
        **STEPWISE,
        "device": "vta",
        "constants": [{"name": "c", "shape": [4, 4], "dtype": "float32", "offset": 0}],
        "modules": [{"file": "kernel0.module", "sha256": "0" * 64, "target": "cpu"}],
        "steps": [
            {
                "title": "matmul",
                "workload": "w",
                "kernel": "kernel0.module",
                "target": "cpu",
                "inputs": ["x", "c"],
                "output": "v",
            }
        ],
        "memory": {"arena_bytes": 24},
    },
}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> NativeExecutable:
    return compile_into(make_two_layers(16, 0), tmp_path_factory.mktemp("layered"))


@pytest.fixture
def folder(network: NativeExecutable, tmp_path: Path) -> Path:
    shutil.copytree(network.folder, tmp_path / "network")
    return tmp_path / "network"


@pytest.fixture
def forbid_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes mapping of a shared object fail the test."""

    def refuse(data: bytes) -> None:
        raise AssertionError("a shared object was loaded")

    monkeypatch.setattr(network_library, "shared_object", refuse)


def list_paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Lists the paths of all values in a manifest."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*at, key)
        yield from list_paths(inner, (*at, key))


def put(manifest: dict[str, Any], at: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The manifest with another value somewhere; `...`: without it."""
    changed = copy.deepcopy(manifest)
    inner: Any = changed
    for key in at[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[at[-1]]
    else:
        inner[at[-1]] = value
    return changed


def make_sealed(kind: str) -> dict[str, Any]:
    manifest = {"schema": SCHEMA, "kind": kind, **copy.deepcopy(EXPECTED[kind])}
    return {**manifest, SEAL: _seal(manifest)}


JUNK = st.one_of(
    st.just(...),
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["../../etc/passwd", "/etc/passwd", "..", ".", "", "a\0b", "a\nb", "n.so", "c", "sm_90"]),
    st.lists(st.integers(-1, 2**41), max_size=4),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_manifest_is_read(kind: str, tmp_path: Path) -> None:
    manifest = make_sealed(kind)
    write_manifest({"kind": kind, **EXPECTED[kind]}, tmp_path)
    assert load_manifest(tmp_path) == manifest
    (tmp_path / MANIFEST).write_text(json.dumps({**manifest, "threads": 1}))
    assert load_manifest(tmp_path)["threads"] == 1, "whose to choose it is"


@given(data=st.data(), resealed=st.booleans())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_change_is_refused_or_keeps_the_rules(data: st.DataObject, resealed: bool, tmp_path: Path) -> None:
    whole = make_sealed(data.draw(st.sampled_from(KINDS)))
    at = data.draw(st.sampled_from(list(list_paths(whole))))
    changed = put(whole, at, data.draw(JUNK))
    if resealed and at != (SEAL,):
        changed[SEAL] = _seal(changed)
    (tmp_path / MANIFEST).write_text(json.dumps(changed))
    try:
        found = load_manifest(tmp_path)
    except ExecutableError as error:
        assert str(error).startswith(f"{tmp_path / MANIFEST}: ") and len(str(error)) < 600
        return
    assert resealed or changed == whole or at == ("threads",)
    for item in (*found.get("files", ()), *found.get("modules", ()), found["weights"]):
        assert (tmp_path / item["file"]).parent == tmp_path and item["file"] not in (".", "..")
    for tensor in (*found["inputs"], *found["outputs"]):
        assert np.prod(tensor["shape"], dtype=float) * 8 <= 1 << 40
    for constant in found.get("constants", ()):
        assert constant["offset"] + np.prod(constant["shape"]) <= found["weights"]["nbytes"]
    for launch in (launch for step in found.get("launches", ()) for launch in step):
        assert launch["module"] < len(found["modules"]) and all(n + b >= 0 for _, n, b in launch["arguments"])


@given(data=st.binary(max_size=60))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bytes_that_are_no_manifest_are_refused(data: bytes, tmp_path: Path) -> None:
    for text in (
        data,
        b"[" * 100_000,
        b'{"schema": ' + b"9" * 5000 + b"}",
        json.dumps(make_sealed(KINDS[0])).encode()[:-9],
    ):
        (tmp_path / MANIFEST).write_bytes(text)
        with pytest.raises(ExecutableError, match="a manifest must be "):
            load_manifest(tmp_path)


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (("files", 0, "file"), "../layered.so", r"`manifest.files\[0\].file` must name a file of the folder, but got"),
        (("weights", "file"), "/etc/passwd", "`manifest.weights.file` must name a file of the folder"),
        (("name",), "../layered", "`manifest.name` must be an identifier of C, but got manifest.name='../layered'"),
        (("name",), "other", "`files` must have other.so or objects, but got layered.h, layered.so"),
        (("memory", "arena_bytes"), -1, r"`manifest.memory.arena_bytes` must be an integer from 0 to 2\*\*40"),
        (("inputs", 0, "shape"), [-4, 16], r"`manifest.inputs\[0\].shape` must be a list of extents"),
        (("inputs", 0, "dtype"), "object", r"`manifest.inputs\[0\].dtype` must be an element type"),
        (("files",), ..., "`manifest` must have the key files, but it has schema, kind"),
        (("threads",), 0, "`manifest.threads` must be 1 to 1024, but got manifest.threads=0"),
        (("steps",), {}, "`manifest.steps` must be a list"),
    ],
)
@pytest.mark.usefixtures("forbid_loading")
def test_what_cannot_be_is_refused(folder: Path, at: tuple[Any, ...], value: Any, message: str) -> None:
    changed = put(json.loads((folder / MANIFEST).read_text()), at, value)
    write_manifest(changed, folder)
    with pytest.raises(ExecutableError, match=message):
        autotune.load(folder)


@pytest.mark.usefixtures("forbid_loading")
def test_shapes_that_were_changed_are_refused(folder: Path) -> None:
    """The kernels would write past the arrays otherwise."""
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(put(manifest, ("inputs", 0, "shape"), [2, 16])))
    with pytest.raises(ExecutableError, match="must be as it was written, but its digest is of another one"):
        autotune.load(folder)


@pytest.mark.usefixtures("forbid_loading")
def test_a_shared_object_that_is_torn_or_another_is_refused(folder: Path) -> None:
    library = folder / "layered.so"
    whole = library.read_bytes()
    swapped = bytearray(whole)
    swapped[len(whole) // 2] ^= 1
    for data in (whole[:-1], whole[: len(whole) // 2], b"", bytes(swapped), whole + b"\0"):
        library.write_bytes(data)
        with pytest.raises(ExecutableError, match="layered.so: a file of a network must be that of the manifest"):
            autotune.load(folder)
    library.unlink()
    with pytest.raises(ExecutableError, match="layered.so: a network must have all of its files, but: No such file"):
        autotune.load(folder)


def test_a_shared_object_without_the_functions_is_refused(folder: Path, tmp_path: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    renamed = put(manifest, ("name",), "other")
    renamed["files"][1]["file"] = "other.so"
    (folder / "layered.so").rename(folder / "other.so")
    write_manifest(renamed, folder)
    with pytest.raises(ExecutableError, match="must have its shared object, but: .* must have the function other"):
        autotune.load(folder)


def test_the_folder_may_be_moved(folder: Path, network: NativeExecutable) -> None:
    x = feeds(make_two_layers(16, 0))["x"]
    np.testing.assert_array_equal(autotune.load(folder)(x), network(x))


# ------------------------------------------------------------------ entry points
def entries() -> dict[str, Any]:
    """Two entry points, which share the target, the threads and the weights."""
    whole = EXPECTED[KINDS[0]]
    shared = {key: whole[key] for key in ("target", "threads", "weights")}
    own = {"kind": KINDS[0]} | {key: whole[key] for key in whole if key not in shared}
    return {
        "kind": "both",
        **shared,
        "entries": {"first": own, "second": {**own, "name": "m", "files": [{"file": "m.so", "sha256": "0" * 64}]}},
    }


def test_an_entry_point_has_its_own_keys_and_the_shared_ones(tmp_path: Path) -> None:
    form = NativeExecutable.format
    write_manifest({**entries(), "entries": {**entries()["entries"], "first": {"name": "n"}}}, tmp_path)
    found = read_manifest(tmp_path, form, "second")
    assert (found["kind"], found["name"], found["threads"], found["weights"]["nbytes"]) == ("native", "m", 2, 64)
    with pytest.raises(ExecutableError, match="`manifest.kind` must be native, but got manifest.kind='both'"):
        read_manifest(tmp_path, form, "first")
    for entry in (None, "third"):
        with pytest.raises(ExecutableError, match="`entry` must be first, second, but got entry="):
            read_manifest(tmp_path, form, entry)
    with pytest.raises(ExecutableError, match="`kind` must be native or .* or language, but got kind='both'"):
        autotune.load(tmp_path)
    write_manifest({"kind": KINDS[0], **EXPECTED[KINDS[0]]}, tmp_path)
    with pytest.raises(ExecutableError, match="`entry` must be left out, as there is one, but got entry='first'"):
        read_manifest(tmp_path, form, "first")


@pytest.mark.parametrize("bad", [{}, [], 3, {"first": []}, {str(n): {} for n in range(MOST_ENTRIES + 1)}])
def test_entry_points_that_cannot_be_are_refused(bad: Any, tmp_path: Path) -> None:
    write_manifest({**entries(), "entries": bad}, tmp_path)
    with pytest.raises(ExecutableError, match="`manifest.entries` must be 1 to 16 objects by name"):
        read_manifest(tmp_path, NativeExecutable.format, "first")


@pytest.mark.parametrize("offset", [1, 64, -64, 1 << 39])
def test_constants_outside_the_weights_are_refused(offset: int, tmp_path: Path) -> None:
    whole = EXPECTED["stepwise"]
    write_manifest({"kind": "stepwise", **put(whole, ("constants", 0, "offset"), offset)}, tmp_path)
    with pytest.raises(ExecutableError, match="offset"):
        load_manifest(tmp_path)
