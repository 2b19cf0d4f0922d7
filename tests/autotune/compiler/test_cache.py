"""The cache: what comes out of it is what went in or nothing, and an executable is the same with and without it."""

from __future__ import annotations

import logging
import os
import stat
import threading
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import autotune
from autotune.cli.app import app
from autotune.compiler.cache import code
from autotune.compiler.cache.kernels import ChoiceStore, KernelCache, symbol_name
from autotune.compiler.cache.locations import open_cache, resolve_folder
from autotune.compiler.cache.store import TORN_SECONDS, CacheError, FolderCache
from autotune.config import ConfigError
from autotune.schedule import KernelSpec, Schedule
from search_space import workloads
from search_space.schedule.trace import Trace
from targets import registry
from tests.autotune.compiler.test_compiled import compute_reference, feeds, small

TARGET = registry.get("cpu")
SOFTMAX = workloads.softmax(4, 4)
CHOICE = Schedule("direct", Trace(()))


def key(number: int) -> str:
    return sha256(str(number).encode()).hexdigest()


def entries(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("??/*")}


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ------------------------------------------------------------------ entries
def test_what_is_put_is_got_and_is_private(tmp_path: Path) -> None:
    store = FolderCache(tmp_path / "cache")
    assert store.get(key(0)) is None
    for number, payload in enumerate((b"", b"\n", bytes(range(256)) * 9)):
        store.put(key(number), payload)
        assert FolderCache(tmp_path / "cache").get(key(number)) == payload
    assert store.size().entries == 3
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "cache", *(tmp_path / "cache").glob("??/*"))]
    assert modes == [0o700, 0o600, 0o600, 0o600]


@settings(max_examples=40)
@given(
    payload=st.binary(min_size=1, max_size=40), at=st.integers(0, 10**6), flip=st.integers(1, 255), cut=st.booleans()
)
def test_an_entry_that_is_not_whole_is_none(
    tmp_path_factory: pytest.TempPathFactory, payload: bytes, at: int, flip: int, cut: bool
) -> None:
    store = FolderCache(tmp_path_factory.mktemp("cache"))
    store.put(key(0), payload)
    (path,) = store.folder.glob("??/*")
    data = bytearray(path.read_bytes())
    at %= len(data)
    data[at] ^= flip
    path.write_bytes(data[:at] if cut else data)
    assert store.get(key(0)) is None
    store.put(key(0), payload)
    assert store.get(key(0)) == payload


def test_an_entry_in_the_place_of_another_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Files that change places, a link, a FIFO and a folder are no entries, and are made again."""
    store = FolderCache(tmp_path)
    for number in range(5):
        store.put(key(number), b"a%d" % number)
    first, second, *others = (tmp_path / key(n)[:2] / key(n) for n in range(5))
    first.rename(tmp_path / "aside")
    second.rename(first)
    (tmp_path / "aside").rename(second)
    for path in others:
        path.unlink()
    os.mkfifo(others[0])
    others[1].mkdir()
    others[2].symlink_to(first)
    for number in range(5):
        assert store.get(key(number)) is None and store.read(key(number)) is None
    for number in (0, 1, 2, 4):
        store.put(key(number), b"b")
        assert store.get(key(number)) == b"b" and store.has(key(number))
    assert not store.has(key(3))


def test_a_damaged_entry_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = FolderCache(tmp_path)
    for number in range(3):
        store.put(key(number), b"a")
    for path in tmp_path.glob("??/*"):
        path.write_bytes(b"b")
    with caplog.at_level(logging.WARNING):
        assert [store.get(key(number)) for number in range(3)] == [None] * 3
    (said,) = caplog.messages
    assert said.startswith("an entry of the cache is damaged and will be made again: ")


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    store = FolderCache(tmp_path, limit=1200)
    for number in range(5):
        store.put(key(number), bytes(200))
        os.utime(tmp_path / key(number)[:2] / key(number), (number, number))
    assert store.get(key(0)) is not None  # used now
    store.trim()
    assert sorted(entries(tmp_path)) == sorted(key(number) for number in (0, 3, 4))
    assert store.size().nbytes <= 1200


def test_what_was_never_finished_goes_when_it_is_old(tmp_path: Path) -> None:
    store = FolderCache(tmp_path)
    store.put(key(0), b"a")
    place = next(tmp_path.glob("??"))
    for name, age in ((".new", 0.0), (".old", 2 * TORN_SECONDS)):
        (place / name).write_bytes(b"half")
        os.utime(place / name, times=(os.stat(place).st_mtime - age,) * 2)
    store.trim()
    assert {path.name for path in place.iterdir()} == {key(0), ".new"}


def test_a_folder_that_others_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(CacheError, match="`cache` must be a folder of this user that nobody else may write to, but"):
        FolderCache(tmp_path)
    with pytest.raises(ConfigError, match="cache: `cache` must be a folder of this user"):
        autotune.compile(small(), cache=tmp_path)


def test_a_folder_that_cannot_be_written_costs_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = FolderCache(tmp_path / "file" / "cache")
    with caplog.at_level(logging.WARNING):
        for number in range(2):
            store.put(key(number), b"a")
    store.trim()
    assert [text.partition(":")[0] for text in caplog.messages] == ["the cache cannot be written"]


def test_many_write_and_read_one_entry_at_a_time(tmp_path: Path) -> None:
    payload, wrong = bytes(100_000), []

    def work() -> None:
        store = FolderCache(tmp_path)
        for _ in range(20):
            store.put(key(0), payload)
            if store.get(key(0)) != payload:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert list(entries(tmp_path)) == [key(0)]


# ------------------------------------------------------------------ keys
def test_keys_differ_by_all_that_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = KernelCache(FolderCache(tmp_path))
    first, second = (ChoiceStore(cache, lambda _, seed=seed: {"seed": seed}) for seed in (0, 1))
    other = registry.get("cpu:haswell")
    found = [
        first.key(SOFTMAX, TARGET),
        second.key(SOFTMAX, TARGET),
        first.key(SOFTMAX, other),
        first.key(workloads.softmax(4, 8), TARGET),
        cache.module_key(KernelSpec(SOFTMAX, CHOICE, {}, "a"), TARGET),
        cache.module_key(KernelSpec(SOFTMAX, CHOICE, {}, "b"), TARGET),
        cache.module_key(KernelSpec(SOFTMAX, CHOICE, {}, "a"), other),
        cache.module_key(KernelSpec(SOFTMAX, CHOICE, {"x": (8, 1)}, "a"), TARGET),
        cache.module_key(KernelSpec(SOFTMAX, Schedule("other", Trace(())), {}, "a"), TARGET),
    ]
    monkeypatch.setattr("autotune.compiler.cache.kernels.code_digest", lambda: "another version")
    found += [
        first.key(SOFTMAX, TARGET),
        cache.module_key(KernelSpec(SOFTMAX, CHOICE, {}, "a"), TARGET),
    ]
    assert None not in found
    assert len({*found}) == len(found)


def test_targets_whose_code_is_not_known_by_its_program_are_not_kept(tmp_path: Path) -> None:
    cache = KernelCache(FolderCache(tmp_path))
    assert ChoiceStore(cache, lambda _: {}).key(SOFTMAX, registry.get("vta")) is None
    assert cache.module_key(KernelSpec(SOFTMAX, CHOICE, {}, "a"), registry.get("c")) is None


def test_the_code_is_known_by_its_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "search_space").mkdir()
    monkeypatch.setattr(code, "_ROOT", tmp_path)
    found = []
    for text in ("a", "b"):
        (tmp_path / "search_space" / "one.py").write_text(text)
        found.append(code.code_digest.__wrapped__())
    assert found[0] != found[1]


def test_the_folder_is_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "said"))
    assert resolve_folder() == tmp_path / "said"
    assert resolve_folder(str(tmp_path)) == tmp_path
    assert open_cache("none") is None
    monkeypatch.delenv("AUTOTUNE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert resolve_folder() == tmp_path / "autotune" / "kernels"


# ------------------------------------------------------------------ executables
def test_an_executable_is_the_same_with_a_cold_a_warm_a_damaged_and_no_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_files(name: str, cache: Path | str) -> dict[str, bytes]:
        network = autotune.compile(small(), threads=1, output=tmp_path / name, cache=cache)
        np.testing.assert_allclose(network(*feeds().values())[0], compute_reference(feeds())[0], rtol=1e-4, atol=1e-5)
        return files(tmp_path / name / "network")

    none, cold = compile_files("none", "none"), compile_files("cold", tmp_path / "cache")
    kept = entries(tmp_path / "cache")
    assert kept
    for path in (tmp_path / "cache").glob("??/*"):
        path.write_bytes(path.read_bytes()[:-1])
    damaged = compile_files("damaged", tmp_path / "cache")
    assert entries(tmp_path / "cache") == kept

    def refuse(*_: object) -> None:
        raise AssertionError("a warm cache must leave nothing to be made")

    monkeypatch.setattr("autotune.tuner.untimed.select_by_roofline", refuse)
    monkeypatch.setattr(type(TARGET), "build", refuse)
    monkeypatch.setattr(type(TARGET), "link", refuse)
    warm = compile_files("warm", tmp_path / "cache")
    assert none == cold == damaged == warm


def test_networks_share_what_they_have_in_common(tmp_path: Path) -> None:
    autotune.compile(small(), threads=1, cache=tmp_path)
    kept, other = entries(tmp_path), small()
    other.graph.name = "other"
    autotune.compile(other, threads=1, cache=tmp_path)
    found = entries(tmp_path)
    assert kept.items() <= found.items()
    assert len(found) == len(kept) + 1  # what its kernels are linked to has its name


def test_kernels_are_named_after_all_that_counts() -> None:
    found = [
        symbol_name(SOFTMAX, CHOICE, {}, TARGET),
        symbol_name(SOFTMAX, CHOICE, {}, registry.get("cpu:haswell")),
        symbol_name(SOFTMAX, CHOICE, {"x": (8, 1)}, TARGET),
        symbol_name(SOFTMAX, Schedule("other", Trace(())), {}, TARGET),
        symbol_name(workloads.softmax(4, 8), CHOICE, {}, TARGET),
    ]
    assert len({*found}) == len(found) and None not in found
    assert symbol_name(SOFTMAX, CHOICE, {}, TARGET) == found[0]
    assert symbol_name(SOFTMAX, CHOICE, {}, registry.get("c")) is None


def test_the_command_shows_and_clears(tmp_path: Path) -> None:
    store = FolderCache(tmp_path / "cache")
    store.put(key(0), bytes(2**20))
    shown = CliRunner().invoke(app, ["cache", "--folder", str(store.folder)])
    assert f"{store.folder}: 1 entry of 1.0 MiB, at most 1024 MiB are kept" in shown.output
    cleared = CliRunner().invoke(app, ["cache", "--clear", "--folder", str(store.folder)])
    assert f"{store.folder}: removed 1 entry of 1.0 MiB" in cleared.output
    assert entries(store.folder) == {}
    assert CliRunner().invoke(app, ["cache"]).output == "there is no cache: its folder is said to be none\n"
