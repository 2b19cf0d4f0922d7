"""Plain words in docstrings, pages, names and help."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.prose import commands, docstrings, names, repository, sentences, words


def test_the_repository_keeps_the_rules() -> None:
    """`python -m tests.architecture.prose PATH` prints the offences; the package's docstring says the rules."""
    assert [str(offence) for offence in repository.offences()] == []


def test_verbs_are_sorted_into_one_list_each() -> None:
    assert not words.BASE_FORMS & words.FORBIDDEN_HEADS
    assert words.NOUNS_TOO <= words.BASE_FORMS | words.THIRD_PERSON


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ('def f():\n    """Of each size."""', "docstring-head"),
        ('def f():\n    """The same for rows."""', "docstring-head"),
        ('class C:\n    """Whose constants are weights."""', "docstring-head"),
        ('"""What a network takes."""', "docstring-head"),
        ('X = 1\n"""Where to look."""', "docstring-head"),
        ('class C:\n    x: int\n    """By which runs ask."""', "docstring-head"),
        ('def f():\n    """Seconds of a run."""', "docstring-verb"),
        ('def f():\n    """Names of the axes."""', "docstring-verb"),
        ('def f():\n    """Name of a run."""', "docstring-verb"),
        ('def f():\n    """The rows."""', "docstring-verb"),
        ('class C:\n    """Emits loops."""', "docstring-noun"),
        ('class C:\n    """Measures the time."""', "docstring-noun"),
        ('def f():\n    """Returns rows.\n\n    Args:\n        x: of each row.\n    """', "entry-head"),
        ('def f():\n    """Returns rows.\n\n    Returns:\n        What is left.\n    """', "entry-head"),
        ('def f():\n    """Returns rows.\n\n    Raises:\n        ValueError: where none is.\n    """', "entry-head"),
        ('def f():\n    """Returns rows. Those of tails are shorter."""', "subject"),
        ('def f():\n    """Returns the row, or None if there is none."""', "dialect"),
        ('def f():\n    """Returns the row that stands first."""', "dialect"),
        ('def f():\n    """See `g`."""', "see-only"),
        ('class Plan:\n    @property\n    def latency(self):\n        """The latency of this plan."""', "repeats-name"),
    ],
)
def test_a_docstring_breaks_a_rule(source: str, rule: str) -> None:
    offences = docstrings.offences_of_docstrings("autotune/x.py", ast.parse(source))
    assert rule in [offence.rule for offence in offences]


@pytest.mark.parametrize(
    "source",
    [
        'def f():\n    """Names the axes."""',
        'def f():\n    """Runs in a process."""',
        'def f():\n    """Name the axes."""',
        'def f():\n    """Checks that rows fit; is None possible? What then? A name that stands for a row."""',
        'class C:\n    """Rows of a table."""',
        'class C:\n    """Measures of similarity."""',
        'class C:\n    @cached_property\n    def best(self):\n        """Seconds of the fastest run."""',
        'def f():\n    """Draws rows.\n\n    Args:\n        x: seed.\n        y: whether to sort.\n    """',
        'def f():\n    """Draws rows.\n\n    Returns:\n        Rows, which\n        of course are sorted.\n    """',
    ],
)
def test_a_docstring_keeps_the_rules(source: str) -> None:
    assert list(docstrings.offences_of_docstrings("autotune/x.py", ast.parse(source))) == []


def test_docstrings_of_tests_may_begin_with_any_noun() -> None:
    tree = ast.parse('def f():\n    """Rows that stand."""\ndef g():\n    """Of rows."""')
    offences = docstrings.offences_of_docstrings("tests/x.py", tree, heads_only=True)
    assert [(offence.name, offence.rule) for offence in offences] == [("g", "docstring-head")]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def found(): ...", [("name", "found")]),
        ("def _checked(): ...", [("name", "_checked")]),
        ("def f(place, *given): ...", [("name", "f.place"), ("name", "f.given")]),
        ("class Known: ...", [("name", "Known")]),
        ("class C:\n    kept: int", [("name", "C.kept")]),
        ("class C:\n    def f(self):\n        self._held = 1", [("name", "C.f._held")]),
        ("KNOWN = 1", [("name", "KNOWN")]),
        ("def kind_of(x): ...", [("of-suffix", "kind_of")]),
        ("def f():\n    found = 1\n\n\n\n    return found", [("local-name", "f.found")]),
        ("def f():\n    found = 1\n    return found", []),
        ("def f(quantised: bool, seed, hidden, best_found): ...", []),
        ("class C:\n    @property\n    def closed(self) -> bool: ...", []),
        ("def rebuild(): ...", []),
        ("class AllTrialsFailed: ...\nclass Failed: ...", [("name", "Failed")]),
        ("class Mixed: ...\ndef fused(stored): ...", []),
        ("def fuse(stored): ...", [("name", "fuse.stored")]),
        ("class C:\n    deterministic = simulated = closed = True\n    opened = 1", [("name", "C.opened")]),
        ("class C:\n    measured = FormerAttribute('measured_count')", []),
    ],
)
def test_a_name_that_says_nothing_is_noticed(source: str, expected: list[tuple[str, str]]) -> None:
    offences = names.offences_of_names("autotune/x.py", ast.parse(source))
    assert [(offence.rule, offence.name) for offence in offences] == expected


def test_docstrings_of_a_page_keep_the_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text('Rows.\n\n```python\ndef f():\n    """Rows."""\n```\n')
    assert [(o.rule, o.line) for o in repository.offences_in(tmp_path / "page.md")] == [("docstring-verb", 5)]


LONG = " ".join(["word"] * 26)


@pytest.mark.parametrize(
    ("page", "rules"),
    [
        (f"{LONG}.", ["long-sentence"]),
        (f"Short.\n\n- An item,\n  {LONG}.", ["long-sentence"]),
        (f"{LONG[5:]}. A {LONG[10:]}.", []),
        (f"`{LONG}` and [a link](x/{LONG.replace(' ', '/')}).", []),
        (f"```\n{LONG}\n```\n\n| {LONG} |\n\n    {LONG}\n", []),
        ("A row. What is left is none.", ["subject", "dialect"]),
        ("What is left? `what` of rows, e.g. Those.", []),
    ],
)
def test_sentences_of_a_page(page: str, rules: list[str]) -> None:
    assert [offence.rule for offence in sentences.offences_of_page("docs/x.md", page)] == rules


def test_of_a_change_log_the_unreleased_section_counts() -> None:
    page = f"# Changes\n\n{LONG}.\n\n## Unreleased\n\nA line.\n{LONG}.\n\n## 0.1\n\n{LONG}.\n"
    (offence,) = sentences.offences_of_page("CHANGELOG.md", page)
    assert offence.line == 7


def test_help_says_what_a_command_does_and_what_its_options_take() -> None:
    import typer
    import typer.main

    app = typer.Typer()

    @app.command()
    def shows(count: int = typer.Option(3, help="How long."), name: str | None = typer.Option(None, help="A.")) -> None:
        """Shows a row."""

    offences = list(commands.offences_of_command(typer.main.get_command(app), "shows"))
    assert [(offence.rule, offence.text) for offence in offences] == [
        ("cli-help", "Shows a row."),
        ("cli-option", "no unit: How long."),
        ("cli-option", "no values: A."),
        ("cli-option", "no default: A."),
    ]
