"""Rows of a result file that need not be measured again."""

from __future__ import annotations

from benchmarks.results import is_done

ROW = {"cpu": "a", "turns": 3, "commit": "abc", "seconds": 1.0}


def test_a_row_is_done_where_what_must_be_the_same_is() -> None:
    assert is_done(ROW, {}) and is_done(ROW, {"cpu": "a", "turns": 3}) and is_done(ROW, {"commit": "abc"})
    assert not is_done(None, {}) and not is_done(ROW, {"cpu": "b"}) and not is_done(ROW, {"commit": "abd"})
    assert not is_done(ROW, {"threads": None}), "what a row does not tell is not the same"


def test_a_commit_with_changes_is_never_done() -> None:
    for commit in ("abc+", ""):  # files have changed, perhaps again; no repository
        assert not is_done({**ROW, "commit": commit}, {"commit": commit})
        assert is_done({**ROW, "commit": commit}, {"cpu": "a"})
