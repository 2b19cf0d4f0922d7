"""Commands on the pages: subcommands, options and modules that they name exist."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer.main

from autotune.cli.app import app
from tests.architecture.test_docs import PAGES, ROOT, page_name
from tests.without_lab import COMMANDS, has_lab

CODE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`|^(?: {4}|\$ )((?:[^\n\\]|\\\n|\\.)+)$", re.MULTILINE)
"""Code within a line, which may go on in the next, and lines of code by themselves."""


def commands(page: Path, program: str) -> list[list[str]]:
    """Words behind `program` in each command of a page; pipes, comments and what follows them are left out."""
    text = re.sub(r"^```\w*$", "", page.read_text(), flags=re.MULTILINE)
    shown = [(inline or block).replace("\\\n", " ").replace("\n", " ").strip() for inline, block in CODE.findall(text)]
    return [
        shlex.split(re.split(r" [|>#] | && |; ", line[len(program) :])[0], comments=True)
        for line in shown
        if line.startswith(f"{program} ")
    ]


def find_problem(words: list[str]) -> str | None:
    """Returns the error in the words behind `autotune`; None without one."""
    command: Any = typer.main.get_command(app)
    words = list(words)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        name = words.pop(0)
        if name in COMMANDS and not has_lab():
            return None  # there are no options to compare with
        if name not in command.commands:
            return f"no command {name}"
        command = command.commands[name]
    known = {text for parameter in command.params for text in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    unknown = [word for word in words if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known]
    return f"no option {', '.join(unknown)}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_commands_of_a_page_have_what_they_name(page: Path) -> None:
    wrong = [(words, found) for words in commands(page, "autotune") if (found := find_problem(words)) is not None]
    assert wrong == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=page_name)
def test_modules_of_a_page_have_the_options_that_it_shows(page: Path) -> None:
    wrong = []
    for program in ("python -m", "python3 -m"):
        for module, *words in commands(page, program):
            if module.split(".")[0] not in ("benchmarks", "tests", "measure", "autotune"):
                continue
            spec = find_spec(module)
            if spec is None or spec.origin is None:
                wrong.append((module, "no such module"))
                continue
            text = sources(Path(spec.origin))
            options = [word.partition("=")[0].rstrip("].,)") for word in words if word.startswith(("--", "[--"))]
            wrong += [(module, option) for option in options if f'"{option.lstrip("[")}"' not in text]
    assert wrong == []


def sources(origin: Path) -> str:
    """Text of a module, or of its package, and of the modules of benchmarks and tests that it imports options from."""
    own = sorted(origin.parent.glob("*.py")) if origin.name == "__init__.py" else [origin]
    text = "\n".join(path.read_text() for path in own)
    imported = re.findall(r"^ *from ((?:benchmarks|tests)[\w.]*) import", text, re.MULTILINE)
    places = [ROOT / f"{name.replace('.', '/')}.py" for name in dict.fromkeys(imported)]
    return "\n".join([text, *(place.read_text() for place in places if place.exists())])


def test_what_is_not_there_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`autotune study`, `autotune run X --sets y`, `autotune run X\n--set y=1` and\n\n    autotune ui | cat\n"
    )
    found = [find_problem(words) for words in commands(page, "autotune")]
    assert found == ["no command study", "no option --sets", None, None]
