"""Folders of a user: in the home or where the environment says, and without a home where nobody else can write."""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.compiler.cache.locations import resolve_folder
from autotune.tuner.database.locations import open_schedules, own_path
from measure.ray.cluster import _joining
from search_space import folders
from search_space.folders import FolderError, cache_folder, data_folder, runtime_folder

EACH = (cache_folder, data_folder, runtime_folder)


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without a home or a session; returns the temporary folder."""
    shared = tmp_path / "shared"
    shared.mkdir()
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "AUTOTUNE_CACHE"):
        monkeypatch.delenv(name, raising=False)

    def unknown(user: int) -> None:
        raise KeyError(user)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(folders, "SESSIONS", tmp_path / "sessions")
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    return shared


def test_folders_lie_in_the_home_or_where_the_environment_says(
    nobody: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == tmp_path / ".cache/autotune" and data_folder() == tmp_path / ".local/share/autotune"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert cache_folder() == tmp_path / "cache/autotune" and data_folder() == tmp_path / "data/autotune"


def test_locks_lie_in_the_sessions_folder_if_it_is_private(
    nobody: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = tmp_path / "sessions" / str(os.getuid())
    session.mkdir(parents=True)
    assert runtime_folder() == session
    named = tmp_path / "named"
    named.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(named))
    assert runtime_folder() == named
    named.chmod(0o777)
    assert runtime_folder() == session


def test_a_user_without_a_home_has_a_private_folder(nobody: Path) -> None:
    own = nobody / f"autotune-{os.getuid()}"
    assert [folder() for folder in EACH] == [own] * 3 and own.stat().st_mode & 0o777 == 0o700
    assert resolve_folder() == own / "kernels" and own_path() == own / "schedules.jsonl"
    assert len(open_schedules("own")) == len(open_schedules("shipped"))
    assert _joining()["RAY_AUTH_MODE"] in ("disabled", os.environ.get("RAY_AUTH_MODE"))


@pytest.mark.parametrize("folder", EACH)
@pytest.mark.parametrize("way", ["writable", "link", "file", "foreign"])
def test_a_folder_that_somebody_else_has_is_refused(
    nobody: Path, monkeypatch: pytest.MonkeyPatch, folder: Callable[[], Path], way: str
) -> None:
    own = folder()
    if way == "writable":
        own.chmod(0o777)
    elif way == "foreign":
        stranger = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: stranger)
        own.rename(nobody / f"autotune-{stranger}")
    else:
        own.rename(nobody / "elsewhere")
        own.symlink_to(nobody / "elsewhere") if way == "link" else own.touch()
    with pytest.raises(FolderError, match=r"nobody else may write to, but got .*; remove it, or set `XDG_\w+` to"):
        folder()
