"""The scripts of findings: listed on both pages, pinned, and removed after themselves; none is run here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FINDINGS = ROOT / "findings"
SCRIPTS = sorted(FINDINGS.glob("*.sh"))
NAMES = [script.stem for script in SCRIPTS]


def test_the_table_lists_each_script_once_in_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \|(.+)\|$", (FINDINGS / "README.md").read_text(), re.MULTILINE)
    assert [name for name, _ in rows] == NAMES
    assert all(len(cells.split(" | ")) == 4 for _, cells in rows)


def test_the_page_names_each_script_once() -> None:
    page = (ROOT / "docs/surprises.md").read_text()
    assert sorted(re.findall(r"\(`(\w+)`\)", page)) == NAMES


@pytest.mark.parametrize("script", SCRIPTS, ids=NAMES)
def test_a_script_states_pins_and_cleans_up(script: Path) -> None:
    lines = script.read_text().replace("\\\n", "").splitlines()
    comments = [line for line in lines[1:5] if line.startswith("#")]
    assert lines[0] == "#!/usr/bin/env bash"
    assert comments[0].startswith("# Guess: ") and any(line.startswith("# Case: ") for line in comments)
    assert lines[1 + len(comments)] == "set -euo pipefail"
    assert "folder=$(mktemp -d)" in lines and """trap 'rm -rf "$folder"' EXIT""" in lines
    installs = [line.split("install", 1)[1].split() for line in lines if "bin/pip" in line]
    packages = [word for words in installs for word in words if not word.startswith("--")]
    assert packages and all(re.fullmatch(r"[\w-]+==[\w.]+", package) for package in packages)


@pytest.mark.parametrize("script", SCRIPTS, ids=NAMES)
def test_the_table_names_the_versions_of_a_script(script: Path) -> None:
    row = next(line for line in (FINDINGS / "README.md").read_text().splitlines() if f"| `{script.stem}` |" in line)
    versions = set(re.findall(r"==(\d+\.\d+(?:\.\d+)?)", script.read_text()))
    named = set(re.findall(r" (\d+\.\d+(?:\.\d+)?)", row.split("|")[4]))
    assert named and named - {"22.1"} <= versions
