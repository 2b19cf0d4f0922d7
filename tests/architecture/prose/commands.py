"""Rules of the command line's help: imperative sentences, and what each option takes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer
import typer.main

from autotune.cli.app import app
from tests.architecture.prose import words
from tests.architecture.prose.offence import Offence

ROOT = Path(__file__).parents[3]

UNITS = re.compile(
    r"\b(?:seconds?|milliseconds|ms|minutes|hours|bytes|[KMG]i?B|trials|candidates|threads|cores|rounds|times|factor|share"
    r"|per cent|number|numbers|seed|port|tasks|programs|records|rows|days|samples|kernels|configurations|ratio"
    r"|decibels|dB|entries|repetitions|runs|schedules|elements|layers|epochs|values)\b|%",
    re.IGNORECASE,
)
"""Words of which the help of an option for a number has one."""


def offences_of_commands() -> Iterator[Offence]:
    """Lists the offences of the help of `autotune` and all of its commands."""
    yield from offences_of_command(typer.main.get_command(app), "autotune")


def offences_of_command(command: Any, name: str) -> Iterator[Offence]:
    """Lists the offences of a command's help, of its options, and of the commands of its group."""
    path, line = _locate(command)
    first = ((command.help or "").split() or [""])[0].strip("`.,")
    if first.lower() not in words.BASE_FORMS:
        yield Offence("cli-help", path, name, command.help or "", line)
    hints = get_type_hints(command.callback) if command.callback else {}
    for parameter in command.get_params(typer.Context(command)):
        text = getattr(parameter, "help", None) or ""
        if parameter.param_type_name == "option" and not parameter.is_flag and not parameter.hidden:
            for problem in _problems(parameter, hints.get(parameter.name), text):
                yield Offence("cli-option", path, f"{name}.{parameter.name}", f"{problem}: {text}", line)
    for child_name, child in getattr(command, "commands", {}).items():
        yield from offences_of_command(child, f"{name}.{child_name}")


def _problems(parameter: Any, annotation: Any, text: str) -> Iterator[str]:
    """Lists what the help of an option with a value of an annotated type does not say."""
    kinds = {annotation, *get_args(annotation)}
    if kinds & {int, float} and not UNITS.search(text):
        yield "no unit"
    if str in kinds and parameter.metavar is None and not re.search(r": |`| or |\b(?i:file|folder)\b", text):
        yield "no values"
    is_file = Path in kinds  # without one nothing is read or written
    if not (parameter.required or parameter.multiple or is_file or parameter.default is not None or "default" in text):
        yield "no default"


def _locate(command: Any) -> tuple[str, int]:
    """Returns the file and line of the function of a command."""
    function = inspect.unwrap(command.callback) if command.callback else None
    module = inspect.getmodule(function) if function else None
    if function is None or module is None or module.__file__ is None or not Path(module.__file__).is_relative_to(ROOT):
        return "autotune/cli/app.py", 1
    return Path(module.__file__).relative_to(ROOT).as_posix(), function.__code__.co_firstlineno
