"""Rules of docstrings: how they begin, how their entries begin, and what they must not leave unsaid."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.architecture.prose import words
from tests.architecture.prose.names import statements
from tests.architecture.prose.offence import Offence
from tests.architecture.prose.sentences import dialect, sentences, subject

SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):$")
ENTRY = re.compile(r"^(\*{0,2}[\w.]+(?: \([^)]*\))?(?:, \*{0,2}[\w.]+)*): (.*)$")
"""An entry's first line: a name, or several, and its text."""

DocumentedNode = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Docstring:
    """A docstring in its place.

    Attributes:
        kind: "function", "property", "class", "module" or "constant".
        name: qualified name within the module; "" for the module.
        text: without the indentation of its lines.
        line: number of its first line in the file.
    """

    kind: str
    name: str
    text: str
    line: int


def docstrings(tree: ast.Module) -> Iterator[Docstring]:
    """Lists the docstrings of a module, its classes, functions, constants and attributes."""
    yield from _of_node(tree, "module", "")
    yield from _inside(tree, "")


def _inside(parent: ast.AST, prefix: str) -> Iterator[Docstring]:
    previous: ast.AST | None = None
    for node in statements(parent):
        if isinstance(node, ast.ClassDef):
            yield from _of_node(node, "class", f"{prefix}{node.name}")
            yield from _inside(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            kind = "property" if _is_property(node) else "function"
            yield from _of_node(node, kind, f"{prefix}{node.name}")
            yield from _inside(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            targets = previous.targets if isinstance(previous, ast.Assign) else [getattr(previous, "target", None)]
            if isinstance(targets[0], ast.Name | ast.Attribute):
                name = targets[0].id if isinstance(targets[0], ast.Name) else targets[0].attr
                yield Docstring("constant", f"{prefix}{name}", _unindent(node.value.value), node.lineno)
        else:
            yield from _inside(node, prefix)
        previous = node


def _of_node(node: DocumentedNode, kind: str, name: str) -> Iterator[Docstring]:
    text = ast.get_docstring(node)
    if text:
        yield Docstring(kind, name, text, node.body[0].lineno)


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def _unindent(text: str) -> str:
    first, _, rest = text.partition("\n")
    lines = rest.split("\n")
    return "\n".join([first.strip(), *(line.strip() for line in lines)]).strip()


def offences_of_docstrings(path: str, tree: ast.Module, heads_only: bool = False) -> Iterator[Offence]:
    """Lists the offences of a module's docstrings.

    Args:
        path: path of the module from the repository's root.
        tree: syntax tree of the module.
        heads_only: whether only forbidden first words count, as in tests.
    """
    for docstring in docstrings(tree):
        for rule, text, line in [*_head(docstring, heads_only), *([] if heads_only else _rest(docstring))]:
            yield Offence(rule, path, docstring.name, text, line)


def _head(docstring: Docstring, heads_only: bool) -> Iterator[tuple[str, str, int]]:
    first_line = docstring.text.split("\n")[0]
    first, second = [*first_line.split(), "", ""][:2]
    word = first.strip("`'\"(").rstrip(",.:;)").lower()
    if word in words.FORBIDDEN_HEADS or (word, second) == ("the", "same"):
        yield "docstring-head", first_line, docstring.line
    elif heads_only:
        return
    elif docstring.kind == "function":
        if not words.is_verb(first, second):
            yield "docstring-verb", first_line, docstring.line
    elif docstring.kind != "property" and not words.is_noun(first, second):
        yield "docstring-noun", first_line, docstring.line


def _rest(docstring: Docstring) -> Iterator[tuple[str, str, int]]:
    if re.fullmatch(r"See `[^`]*`\.?", docstring.text):
        yield "see-only", docstring.text, docstring.line
    elif _repeats(docstring):
        yield "repeats-name", docstring.text, docstring.line
    for text, line in _entries(docstring):
        if text.split()[0].rstrip(",.:;").lower() in words.ENTRY_HEADS:
            yield "entry-head", text, line
    for text in _statements(docstring):
        if subject(text):
            yield "subject", text, docstring.line
        if dialect(text):
            yield "dialect", text, docstring.line


def _repeats(docstring: Docstring) -> bool:
    """Tells whether a docstring of one sentence has no word that its name has not."""
    empty = {"the", "a", "an", "of", "this", "its", "it", "returns", "gets", "all", "is"}
    said = {_stem(word) for word in re.findall(r"\w+", docstring.text.lower()) if word not in empty}
    if docstring.kind in ("module", "constant"):
        return False
    parts = docstring.name.split(".")[-2:]
    named = {_stem(word.lower()) for part in parts for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", part)}
    return said <= named


def _stem(word: str) -> str:
    return word.removesuffix("s")


def _entries(docstring: Docstring) -> Iterator[tuple[str, int]]:
    """Lists (text, line) of the entries of `Args`, `Attributes`, `Returns`, `Yields` and `Raises`."""
    section = ""
    for offset, line in enumerate(docstring.text.split("\n")):
        if match := SECTION.match(line.strip()):
            section, first = match[1], True
        elif line and not line.startswith(" "):
            section = ""
        elif section and line.startswith("    ") and not line.startswith("     "):
            entry = ENTRY.match(line.strip())
            if section in ("Returns", "Yields"):
                if first:
                    yield line.strip(), docstring.line + offset
            elif entry and entry[2]:
                yield entry[2], docstring.line + offset
            first = False


def _statements(docstring: Docstring) -> Iterator[str]:
    """Lists the sentences of a docstring, entries of sections included, without blocks of code."""
    blocks = re.split(r"\n\s*\n", docstring.text)
    for block in blocks:
        lines = block.split("\n")
        if SECTION.match(lines[0].strip()):
            entries: list[str] = []
            for line in lines[1:]:
                entry = ENTRY.match(line.strip())
                if entry and not line.startswith("     "):
                    entries.append(entry[2])
                elif entries:
                    entries[-1] += f" {line.strip()}"
                else:
                    entries.append(line.strip())
            for text in entries:
                yield from sentences(text)
        elif not lines[0].startswith("    "):
            yield from sentences(" ".join(line.strip() for line in lines))
