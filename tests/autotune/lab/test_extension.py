"""Additions of the laboratory to the core: its commands are those that tests of the core do without."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
import typer.main

from autotune.lab import extension
from tests.architecture.test_extras import check_refusal
from tests.without_lab import COMMANDS


def test_the_laboratory_adds_the_commands_that_tests_know() -> None:
    app = typer.Typer()
    extension.add_commands(app)
    assert tuple(sorted(typer.main.get_group(app).commands)) == COMMANDS


@pytest.mark.parametrize(
    "arguments",
    [
        "dataset stats shipped",
        "collect configs/collect_cpu.yaml --set output=RUN",
        "costmodel compare shipped --target cpu --hold-out resnet18",
    ],
)
def test_a_command_without_the_packages_of_the_extra_says_so(arguments: str, tmp_path: Path) -> None:
    check_refusal("lab", arguments, tmp_path)
