"""Files of an executable that are written in parts."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_space.files import replace_file, replacing
from targets.manifest import digest


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_digest_of_parts_is_that_of_the_whole(parts: list[bytes]) -> None:
    assert digest(*parts) == sha256(b"".join(parts)).hexdigest()


def test_parts_are_written_one_after_the_other_in_place_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"longer than what follows")
    with path.open("rb") as before:
        replace_file(path, b"ab", memoryview(b"cd"), b"")
        assert before.read() == b"longer than what follows"
    assert path.read_bytes() == b"abcd"
    replace_file(path)
    assert path.read_bytes() == b""


def test_a_part_that_cannot_be_written_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"before")
    with pytest.raises(TypeError):
        replace_file(path, b"ab", "no bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_threads_that_write_one_file_leave_one_whole_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where all have one process id, as first processes of containers do."""
    path, texts = tmp_path / ("\u00e9" * 120), [bytes([n]) * 50_000 for n in range(8)]
    monkeypatch.setattr("os.getpid", lambda: 1)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: replace_file(path, texts[n % 8]), range(80)))
    assert path.read_bytes() in texts and list(tmp_path.iterdir()) == [path]


def test_a_private_file_is_never_readable_by_others(tmp_path: Path) -> None:
    with replacing(tmp_path / "own", private=True) as partial:
        assert partial.stat().st_mode & 0o077 == 0 and not (tmp_path / "own").exists()
    assert (tmp_path / "own").stat().st_mode & 0o077 == 0


def test_no_module_names_partial_files_by_itself() -> None:
    """`search_space.files` draws their names; a process id is not unique among threads and containers."""
    root = Path(__file__).parents[2]
    own = root / "search_space" / "files.py"
    for package in ("search_space", "targets", "measure", "costmodel", "autotune", "benchmarks"):
        for path in (root / package).rglob("*.py"):
            text = path.read_text()
            assert path == own or not re.search(
                r"os\.replace\(|os\.rename\(|mkstemp\(|delete=False|\.\{os\.getpid", text
            ), path
