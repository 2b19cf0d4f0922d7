"""The code on the page of substitutions."""

from __future__ import annotations

from tests.architecture.test_docs import DOCS, run


def test_the_code_of_the_page_runs() -> None:
    assert run(DOCS / "substitutions.md")["graph"].nodes
