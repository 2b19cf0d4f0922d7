"""Executables that are kept as a whole: the same as those that are made anew, for the same file's bytes alone."""

from __future__ import annotations

import logging
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.compiler import compile_from_records, compile_workers, prepare
from autotune.compiler.bundle_cache import find_bundle_entry
from autotune.compiler.cache.locations import open_networks
from autotune.compiler.cache.networks import NetworkCache
from autotune.compiler.cache.store import FolderCache
from autotune.config import ConfigError, check_config
from autotune.graph.frontends.onnx.importer.registry import HANDLERS
from autotune.run.workloads import make_job

INPUT = np.random.default_rng(1).standard_normal((4, 128)).astype(np.float32)
WEIGHTS = np.random.default_rng(2).standard_normal((128, 256)).astype(np.float32)


def write_model(path: Path, weights: np.ndarray = WEIGHTS, **options: Any) -> Path:
    """A file of a product of matrices, whose weights are large enough to stay there."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [4, 128]), ("y", [4, 256])))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    graph = helper.make_graph(nodes, "product", [x], [y], [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path, **options)
    return path


def check(network: Any, weights: np.ndarray = WEIGHTS) -> None:
    np.testing.assert_allclose(network(INPUT), np.maximum(INPUT @ weights, 0), rtol=1e-4, atol=1e-4)


def compile_file(path: Path, cache: Path, **options: Any) -> Any:
    return autotune.compile(path, threads=1, cache=cache, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def entries(cache: Path) -> list[Path]:
    return sorted((cache / "networks").glob("??/*"))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_what_is_kept_is_what_was_made(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_model(tmp_path / "model.onnx")
    none, cold = compile_file(path, Path("none")), compile_file(path, cache)
    kept = entries(cache)
    assert len(kept) == 2  # weights, and the other files
    (tmp_path / "elsewhere").mkdir()
    other = write_model(tmp_path / "elsewhere" / "model.onnx")
    monkeypatch.setattr(compile_from_records, "compile_model_in_memory", None)
    warm = [compile_file(path, cache), compile_file(other, cache)]
    folders = [found.save(tmp_path / f"saved{number}") for number, found in enumerate((none, cold, *warm))]
    assert all(contents(folder) == contents(folders[0]) for folder in folders)
    assert entries(cache) == kept
    for network in (cold, *warm, autotune.load(folders[-1])):
        check(network)
        assert network.threads == 1


def test_other_bytes_are_another_network(tmp_path: Path, cache: Path) -> None:
    path = write_model(tmp_path / "model.onnx")
    check(compile_file(path, cache))
    facts = path.stat()
    write_model(path, -WEIGHTS)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))  # nothing but its bytes tells
    check(compile_file(path, cache), -WEIGHTS)
    check(compile_file(path, cache), -WEIGHTS)
    assert len(entries(cache)) == 4


def test_a_damaged_one_is_made_again(tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_model(tmp_path / "model.onnx")
    first = compile_file(path, cache)
    for kept in entries(cache):
        whole = kept.read_bytes()
        for damaged in (whole[:-1], whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:], whole[:10], b""):
            kept.write_bytes(damaged)
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                again = compile_file(path, cache)
            assert again.manifest == first.manifest and kept.read_bytes() == whole
            check(again)
            assert [text.partition(":")[0] for text in caplog.messages] == [
                "an entry of the cache is damaged and will be made again"
            ]


def test_weights_of_other_files_are_not_kept(tmp_path: Path, cache: Path) -> None:
    path = write_model(tmp_path / "model.onnx", save_as_external_data=True, location="data", size_threshold=0)
    check(compile_file(path, cache))
    write_model(path, -WEIGHTS, save_as_external_data=True, location="data", size_threshold=0)
    check(compile_file(path, cache), -WEIGHTS)
    assert entries(cache) == []


@pytest.mark.parametrize("gone", [False, True])
def test_a_file_that_is_written_to_meanwhile_is_not_kept(
    gone: bool, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_model(tmp_path / "model.onnx")
    load_network = prepare.load_network

    def late(*arguments: Any) -> prepare.Network:
        network = load_network(*arguments)
        path.unlink() if gone else os.utime(path, (1, 1))
        return network

    monkeypatch.setattr(prepare, "load_network", late)
    network = compile_file(path, cache)
    assert [entry.name for entry in entries(cache)] == [network.manifest["weights"]["sha256"]]


def test_keys_differ_by_all_that_counts(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_model(tmp_path / "model.onnx")

    def key(**changes: Any) -> str | None:
        config = {"model": str(path), "name": "model", "trials": 0, "cache": str(cache), **changes}
        found = find_bundle_entry(make_job(check_config(config, "test")))
        return None if found is None else found.key

    found = [
        key(),
        key(name="other"),
        key(seed=1),
        key(target="cpu:haswell"),
        key(network={"precision": "bfloat16"}),
        key(network={"quantise": "int8"}),
        key(measure={"threads": 1}),
        key(measure={"cache": "network"}),
        key(search={"algorithms": ["direct"]}),
    ]
    with monkeypatch.context() as context:
        context.setattr("autotune.compiler.bundle_cache.code_digest", lambda: "another version")
        found.append(key())
    with monkeypatch.context() as context:
        context.setattr("autotune.compiler.bundle_cache.version", lambda name: "another library")
        found.append(key())
    assert None not in found and len({*found}) == len(found)
    assert key(output="elsewhere") == key() == found[0]
    for config in ({"precision": "mixed"}, {"quantise": "int8", "quantisation": {"data": "inputs.npz"}}):
        assert key(network=config) is None  # other files take part
    assert key(target="vta") is None and key(cache="none") is None and key(model=str(tmp_path / "none")) is None
    monkeypatch.setitem(HANDLERS, "Relu", lambda call: call.name)
    assert key() is None


def test_a_cache_that_others_may_write_to_is_refused(tmp_path: Path, cache: Path) -> None:
    path = write_model(tmp_path / "model.onnx")
    compile_file(path, cache)
    (cache / "networks").chmod(0o777)
    with pytest.raises(ConfigError, match="cache: `cache` must be a folder of this user"):
        compile_file(path, cache)


def test_what_is_too_large_is_known_all_the_same(tmp_path: Path) -> None:
    cache = NetworkCache(FolderCache(tmp_path, limit=1000))
    small, large = [np.arange(200, dtype=np.uint8)] * 2, [np.zeros(501, np.uint8)]
    digests = [sha256(b"".join(part.tobytes() for part in parts)).hexdigest() for parts in (small, large)]
    for key, parts in zip(digests, (small, large), strict=True):
        cache.put_weights(key, parts)
    cache.put_files("aa", {"a": b"1\n", "b": b""})
    found = cache.weights(digests[0])
    assert found is not None and found.tolist() == [*range(200)] * 2 and found.ctypes.data % 64 == 0
    assert cache.weights(digests[1]) is None
    assert cache.files("aa") == {"a": b"1\n", "b": b""} and cache.files("bb") is None
    assert [cache.knows(key) for key in ("aa", "bb")] == [True, False]


# ------------------------------------------------------------------ processes
class CountingChild(compile_workers.Child):
    """A process that is counted, as are those that have ended."""

    start_count = 0
    end_count = 0

    def __init__(self, options: Any, program: str) -> None:
        super().__init__(options, program)
        CountingChild.start_count += 1

    def close(self) -> None:
        super().close()
        CountingChild.end_count += 1


@pytest.fixture
def child_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (compile_from_records, compile_workers):
        monkeypatch.setattr(module, "allowed_cores", lambda: (0, 1))
    monkeypatch.setattr(compile_workers, "Child", CountingChild)
    monkeypatch.setattr(compile_from_records, "LEAST_BYTES", 1)
    CountingChild.start_count = CountingChild.end_count = 0


@pytest.mark.usefixtures("child_counts")
def test_processes_are_started_for_a_new_model_alone(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_model(tmp_path / "model.onnx")
    check(compile_file(path, cache))
    assert (CountingChild.start_count, CountingChild.end_count) == (2, 2)
    monkeypatch.setattr(NetworkCache, "weights", lambda self, key: None)  # as of one that is too large to be kept
    check(compile_file(path, cache))
    assert CountingChild.start_count == 2
    monkeypatch.setattr(compile_from_records, "LEAST_BYTES", path.stat().st_size + 1)
    check(compile_file(path, tmp_path / "other"))
    assert CountingChild.start_count == 2


@pytest.mark.usefixtures("child_counts")
def test_a_file_that_is_no_model_leaves_no_process_behind(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"none")
    with pytest.raises(ConfigError, match="must be a complete ONNX file"):
        compile_file(tmp_path / "model.onnx", cache)
    assert CountingChild.start_count == CountingChild.end_count == 2


def test_the_folder_of_networks_is_within_that_of_the_cache(tmp_path: Path) -> None:
    found = open_networks(str(tmp_path))
    assert found is not None and found.store.folder == tmp_path / "networks"
    assert open_networks("none") is None
