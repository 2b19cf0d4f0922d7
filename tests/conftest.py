"""Options of the tests, the fixture that holds text against golden files, and what lets tests run in several processes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden.compare import Golden


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--update-golden`."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files instead of comparing")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share what is made once for their module are run by one process, so that it is made once."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None and _shares_with_its_module(item):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def _shares_with_its_module(item: pytest.Item) -> bool:
    """Whether a fixture of module scope serves a test."""
    fixtures = getattr(item, "_fixtureinfo", None)
    definitions = fixtures.name2fixturedefs.values() if fixtures else ()
    return any(definition.scope == "module" for found in definitions for definition in found)


@pytest.fixture(scope="session", autouse=True)
def own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each test process has a temporary folder of its own, and in it a lock of its own on building and timing.

    With the user's, processes of one test run, and whatever else measures on this machine, would wait for each other.
    """
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = tempfile.tempdir = str(tmp_path_factory.mktemp("tmp"))
    yield
    tempfile.tempdir = None
    if before is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares text with `tests/golden/text/NAME`, or writes it there."""
    folder = Path(__file__).parent / "golden" / "text"
    return Golden(folder, update=bool(request.config.getoption("--update-golden")))
