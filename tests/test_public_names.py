"""The public names: completion and help list them, and type checkers find their types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import autotune

ROOT = Path(__file__).parents[1]


def test_completion_lists_the_public_names_alone() -> None:
    assert dir(autotune) == sorted(autotune.__all__)
    assert all(getattr(autotune, name) is not None for name in dir(autotune))


@pytest.mark.parametrize("name", sorted(set(autotune.__all__) - {"__version__"}))
def test_help_names_what_there_is(name: str) -> None:
    assert name in str(autotune.__doc__)


@pytest.mark.parametrize("package", ["search_space", "targets", "measure", "costmodel", "autotune"])
def test_packages_say_that_they_have_types(package: str) -> None:
    assert (ROOT / package / "py.typed").read_bytes() == b""


COMPILE = """
import sys
import autotune
from tests.executable_cases import images

network = autotune.compile(images(), threads=1, cache="none")
loaded = {name for name in sys.modules if name.startswith("autotune.")}
print(*sorted(name for name in loaded if name.split(".")[1] in ("run", "tracking", "report", "collect", "cli")))
"""


def test_compiling_loads_nothing_of_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-c", COMPILE], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
