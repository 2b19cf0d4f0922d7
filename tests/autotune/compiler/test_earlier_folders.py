"""Folders that an earlier version wrote: its own manifests, in `earlier/`, are read, and such folders load."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune import language
from autotune.compiler.executable.loading import load_manifest
from targets.manifest import ExecutableError
from targets.native_executable import NativeExecutable
from tests.autotune.compiler.test_compile import compile_into
from tests.autotune.compiler.test_executable import make_two_layers
from tests.autotune.compiler.test_manifest import EXPECTED
from tests.autotune.graph.nets import feeds

EARLIER = Path(__file__).parent / "earlier"
"""Manifests of a matrix product and of a small GPT-2; code and weights are made by the tests, as machines differ."""
MANIFESTS = [path.relative_to(EARLIER).parent.as_posix() for path in sorted(EARLIER.rglob("manifest.json"))]


def read(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return manifest


def written_as_before(manifest: dict[str, Any], folder: Path, schema: str = "autotune.network/2") -> None:
    """Writes a manifest as the earlier version did: another schema, no kind, and a seal of all keys but two."""
    data = {"schema": schema} | {k: v for k, v in manifest.items() if k not in ("schema", "kind")}
    sealed = {key: value for key, value in data.items() if key not in ("sha256", "threads")}
    data["sha256"] = hashlib.sha256(json.dumps(sealed, sort_keys=True).encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(data, indent=2) + "\n")


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_of_an_earlier_version_are_read(name: str) -> None:
    before, found = read(EARLIER / name), load_manifest(EARLIER / name)
    assert before["schema"] == "autotune.network/2" and "kind" not in before
    assert found == {**before, "schema": "autotune.executable/3", "kind": "native"}


def test_manifests_of_gpus_are_read_too(tmp_path: Path) -> None:
    written_as_before(EXPECTED["cuda"], tmp_path, "autotune.cuda/2")
    assert load_manifest(tmp_path).items() >= {**EXPECTED["cuda"], "kind": "cuda"}.items()


def test_an_executable_loads_from_the_folder_of_an_earlier_version(tmp_path: Path) -> None:
    graph = make_two_layers(16, 0)
    network = compile_into(graph, tmp_path / "new")
    shutil.copytree(network.folder, tmp_path / "old")
    written_as_before(read(network.folder), tmp_path / "old")
    assert read(tmp_path / "old").keys() == read(EARLIER / "network").keys()
    given = feeds(graph)["x"]
    before = autotune.load(tmp_path / "old")
    for other in (before, pickle.loads(pickle.dumps(before)), autotune.load(before.save(tmp_path / "saved"))):
        np.testing.assert_array_equal(other(given), network(given))
    assert (tmp_path / "saved" / "manifest.json").read_bytes() == (network.folder / "manifest.json").read_bytes()


@pytest.mark.parametrize("schema", ["autotune.stepwise/2", "autotune.executable/4", ["autotune.network/2"]])
def test_manifests_of_other_schemas_are_refused_with_the_remedy(schema: object, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({**read(EARLIER / "network"), "schema": schema}))
    with pytest.raises(ExecutableError, match=r"must be of schema autotune\.executable/3, but got .*; compile"):
        autotune.load(tmp_path)


def test_a_language_model_loads_from_the_folder_of_an_earlier_version(tmp_path: Path) -> None:
    sizes = language.GPT2(vocabulary=17, hidden=16, layers=1, heads=2, positions=24)
    model = language.compile(language.gpt2(sizes), 24, threads=1)
    old, new = tmp_path / "old", model.save(tmp_path / "new")
    for name, network in (("prefill", model.prefill_network), ("step", model.step_network)):
        shutil.copytree(network.folder, old / name)
        written_as_before(read(network.folder), old / name)
        assert read(old / name).keys() == read(EARLIER / "language" / name).keys()
    shutil.copy(EARLIER / "language" / "language.json", old)
    shutil.copy(new / "weights", old)
    wanted = model.generate([3, 1, 4], 8)
    for mapped in (False, True):
        found = language.load(old, mapped=mapped)
        assert found.generate([3, 1, 4], 8) == wanted
    again = found.save(tmp_path / "again")
    assert {p.name: p.read_bytes() for p in again.iterdir()} == {p.name: p.read_bytes() for p in new.iterdir()}
    assert language.load(again).generate([3, 1, 4], 8) == wanted
    weights = bytearray((old / "weights").read_bytes())
    weights[3] ^= 1
    (old / "weights").write_bytes(weights)
    with pytest.raises(ExecutableError, match="weights must be those of the manifest"):
        language.load(old)
    (old / "weights").write_bytes((new / "weights").read_bytes())
    other = load_manifest(model.step_network.folder)
    written_as_before({**other, "weights": {**other["weights"], "sha256": "0" * 64}}, old / "step")
    with pytest.raises(ExecutableError, match="weights must be those of the manifest"):
        language.load(old)


def test_files_of_one_name_are_not_written_over_each_other(tmp_path: Path) -> None:
    from targets.bundle import write_entries

    network = compile_into(make_two_layers(16, 0), tmp_path)
    assert isinstance(network, NativeExecutable)
    with pytest.raises(ExecutableError, match=r"`entries` must have files of their own, but two have layered\.h"):
        write_entries({"a": network, "b": network}, network.weights, "language", tmp_path / "both")
    assert not (tmp_path / "both").exists()
