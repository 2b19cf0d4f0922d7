"""Skips that continuous integration takes for failures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ci_skips import EXPECTED

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

def test_passes():
    pass

@pytest.mark.skip(reason="no C compiler")
def test_compiles():
    pass

@pytest.mark.skipif(True, reason="needs avx512vnni")
def test_an_instruction():
    pass

def test_beside_torch():
    pytest.importorskip("torch_of_nobody", reason="torch is not installed")

@pytest.mark.xfail(reason="known", strict=True)
def test_known_to_fail():
    assert False
"""


def outcome(folder: Path, plugin: list[str]) -> str:
    """Returns the last line of pytest over `TESTS`."""
    return print_lines(folder, plugin)[-1]


def print_lines(folder: Path, plugin: list[str]) -> list[str]:
    """Returns the lines that pytest prints over `TESTS`."""
    (folder / "test_skips.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        *plugin,
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
    ]
    run = subprocess.run([*command, str(folder)], cwd=ROOT, env=_without_plugins(), capture_output=True, text=True)
    return run.stdout.splitlines()


def _without_plugins() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "PYTEST_PLUGINS"}


@pytest.mark.parametrize(
    ("reason", "cured"),
    [
        ("torch is not installed", True),
        ("no cuda-core: the extra `gpu` is not installed", True),
        ("nvidia-cuda-nvdisasm is not installed", True),
        ("running cuda text on the host needs g++", True),
        ("no gpu: target cuda must run on a machine with an NVIDIA GPU", False),
        ("needs avx512vnni", False),
        ("needs two cores", False),
        ("on aarch64 it may run", False),
    ],
)
def test_only_what_no_installation_cures_is_expected(reason: str, cured: bool) -> None:
    assert bool(EXPECTED.search(reason)) is not cured


def test_what_a_processor_lacks_is_listed_before_the_last_line(tmp_path: Path) -> None:
    lines = print_lines(tmp_path, ["-p", "tests.ci_skips"])
    head = next(place for place, line in enumerate(lines) if "not tested on this machine" in line)
    assert "1 test: needs avx512vnni" in lines[head:-1]
    assert not any("torch is not installed" in line for line in lines[head:-1] if line.startswith("1 test"))


@pytest.mark.parametrize(
    ("plugin", "expected"),
    [
        ([], "1 passed, 3 skipped, 1 xfailed"),
        (["-p", "tests.ci_skips"], "1 failed, 1 passed, 1 skipped, 1 xfailed, 1 error"),
    ],
)
def test_a_skip_for_want_of_a_package_fails_in_ci(tmp_path: Path, plugin: list[str], expected: str) -> None:
    assert expected in outcome(tmp_path, plugin)


def test_a_skipped_module_fails_in_ci(tmp_path: Path) -> None:
    (tmp_path / "test_module.py").write_text("import pytest\npytest.importorskip('no_such_module_here')\n")
    assert "1 error" in outcome(tmp_path, ["-p", "tests.ci_skips"])


def test_the_processes_of_a_test_run_tell_of_both(tmp_path: Path) -> None:
    (tmp_path / "test_module.py").write_text("import pytest\npytest.importorskip('no_such_module_here')\n")
    expected = "1 failed, 1 passed, 1 skipped, 1 xfailed, 2 errors"  # they go on after the module
    assert expected in outcome(tmp_path, ["-p", "tests.ci_skips", "-n", "1"])
