"""Tests that share something expensive are run by one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import sharing

ROOT = Path(__file__).parents[2]


def test_groups_are_read_from_the_files(tmp_path: Path) -> None:
    marked, shared, cached, plain = (tmp_path / f"{name}.py" for name in ("marked", "shared", "cached", "plain"))
    marked.write_text('pytestmark = pytest.mark.xdist_group("ray")\n@pytest.fixture(scope="module")\n')
    shared.write_text('@pytest.fixture(scope="module", params=P)\ndef pool(): ...\n')
    cached.write_text("@cache\ndef target(): ...\n")
    plain.write_text('buffer("x", scope="local")\n@cached_property\n')
    many = [f"{plain.name}::test_a[{place}]" for place in range(2 * sharing.NEIGHBOURS + 1)]
    names = [
        f"{marked.name}::test_a[x]",
        f"{shared.name}::test_a",
        f"{shared.name}::test_b",
        f"{cached.name}::test_a[x]",
    ]
    found = sharing.group_tests([*names, *many], tmp_path)
    assert [found[name] for name in names] == ["ray", str(shared), str(shared), str(cached)]
    assert [found[name] for name in many] == [
        *["plain.py#0"] * sharing.NEIGHBOURS,
        *["plain.py#1"] * sharing.NEIGHBOURS,
        many[-1],
    ]


def test_few_tests_of_a_file_are_run_by_any_process(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text('buffer("x", scope="local")\n@cached_property\n')
    names = [f"plain.py::test_{place}" for place in range(sharing.NEIGHBOURS - 1)]
    assert sharing.group_tests(names, tmp_path) == {name: name for name in names}


TESTS = """
import pytest  # each test fails unless the same process has run those before it

@pytest.fixture(scope="module")
def shared():
    return []

@pytest.mark.parametrize("number", range(6))
def test_it(shared, number):
    assert len(shared) == number
    shared.append(number)
"""


def test_a_file_that_shares_a_fixture_is_run_by_one_process(tmp_path: Path) -> None:
    for name in ("test_a.py", "test_b.py", "test_c.py"):
        (tmp_path / name).write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    program = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
        "-q",
    ]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    options = ["-n", "2", "--dist=loadgroup", "--rootdir", str(tmp_path)]
    run = subprocess.run([*program, *options, str(tmp_path)], cwd=ROOT, env=kept, capture_output=True, text=True)
    assert "18 passed" in run.stdout, run.stdout
