"""Files of an executable that are written in parts."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from targets.manifest import digest, replace_file


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
