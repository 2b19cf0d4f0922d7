"""Rules of names: those that say nothing, bare participles, and functions in `_of`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.architecture.prose import words
from tests.architecture.prose.offence import Offence

Function = ast.FunctionDef | ast.AsyncFunctionDef
LONG_LIFE = 3
"""Lines from the first to the last use of a local variable beyond which its name counts."""


def offences_of_names(path: str, tree: ast.Module, with_locals: bool = True) -> Iterator[Offence]:
    """Lists the names of a module that say nothing.

    Args:
        path: path of the module from the repository's root.
        tree: syntax tree of the module.
        with_locals: whether local variables count, too.
    """
    seen: set[tuple[str, str, str]] = set()
    for rule, scope, name, line in _offences(tree, "", with_locals):
        if rule == "name" and f"{scope}.{name}" in words.STORED_NAMES:
            continue
        if (rule, scope, name) not in seen:
            seen.add((rule, scope, name))
            yield Offence(rule, path, f"{scope}.{name}".lstrip("."), name, line)


def _offences(node: ast.AST, scope: str, with_locals: bool) -> Iterator[tuple[str, str, str, int]]:
    """Lists (rule, scope, name, line) in a node and all below it."""
    for child in statements(node):
        inner = scope
        if isinstance(child, ast.ClassDef):
            inner = f"{scope}.{child.name}".lstrip(".")
            if is_empty(child.name) or is_bare_participle(child.name):
                yield "name", scope, child.name, child.lineno
        elif isinstance(child, Function):
            inner = f"{scope}.{child.name}".lstrip(".")
            yield from _of_function(child, scope, inner, with_locals)
        elif isinstance(child, ast.Assign | ast.AnnAssign | ast.AugAssign):
            yield from _of_assignment(child, node, scope)
        yield from _offences(child, inner, with_locals)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Lists the statements of a node's blocks, and what holds blocks, such as handlers; expressions hold none."""
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield from block


def _of_function(node: Function, scope: str, inner: str, with_locals: bool) -> Iterator[tuple[str, str, str, int]]:
    if node.name.endswith("_of") and not node.name.startswith("test_"):
        yield "of-suffix", scope, node.name, node.lineno
    is_value = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    if is_empty(node.name) or (is_bare_participle(node.name) and not (is_value and _is_flag(node.returns))):
        yield "name", scope, node.name, node.lineno
    for argument in _arguments(node.args):
        if _is_bad_value(argument.arg, argument.annotation):
            yield "name", inner, argument.arg, argument.lineno
    if with_locals and (node.end_lineno or 0) - node.lineno > LONG_LIFE:
        for name, line in _long_locals(node):
            yield "local-name", inner, name, line


def _of_assignment(
    node: ast.Assign | ast.AnnAssign | ast.AugAssign, parent: ast.AST, scope: str
) -> Iterator[tuple[str, str, str, int]]:
    """Lists module-level names, fields of classes and attributes of `self` that are assigned."""
    annotation = node.annotation if isinstance(node, ast.AnnAssign) else None
    if _is_truth(node.value) or _is_former_name(node.value):
        return
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for item in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(item, ast.Attribute) and isinstance(item.value, ast.Name) and item.value.id == "self":
                name = item.attr
            elif isinstance(item, ast.Name) and isinstance(parent, ast.Module | ast.ClassDef):
                name = item.id
            else:
                continue
            if _is_bad_value(name, annotation):
                yield "name", scope, name, item.lineno


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    more = [arguments.vararg, arguments.kwarg]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *(item for item in more if item)]


def _long_locals(function: Function) -> Iterator[tuple[str, int]]:
    """Lists (name, line) of the empty names that live longer than `LONG_LIFE` lines in a function itself."""
    uses: dict[str, list[int]] = {}
    bound: set[str] = set()
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, Function | ast.ClassDef):
            continue
        if isinstance(node, ast.Name) and is_empty(node.id):
            uses.setdefault(node.id, []).append(node.lineno)
            if isinstance(node.ctx, ast.Store):
                bound.add(node.id)
        waiting.extend(ast.iter_child_nodes(node))
    for name in sorted(bound):
        if max(uses[name]) - min(uses[name]) > LONG_LIFE:
            yield name, min(uses[name])


def _is_bad_value(name: str, annotation: ast.expr | None) -> bool:
    return is_empty(name) or (is_bare_participle(name) and not _is_flag(annotation))


def _is_flag(annotation: ast.expr | None) -> bool:
    """Tells whether a value is annotated as a bool, whose name may be a participle: `quantised: bool`."""
    return annotation is not None and "bool" in ast.unparse(annotation)


def _is_truth(value: ast.expr | None) -> bool:
    """Tells whether an assigned value is True or False, so that the name is a flag's."""
    return isinstance(value, ast.Constant) and isinstance(value.value, bool)


def _is_former_name(value: ast.expr | None) -> bool:
    """Tells whether an assigned value keeps a former name for one release."""
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "FormerAttribute"


def is_empty(name: str) -> bool:
    """Tells whether a name is one of `words.EMPTY_NAMES`, underscores and digits at its ends left out."""
    return name.strip("_0123456789").lower() in words.EMPTY_NAMES


def is_bare_participle(name: str) -> bool:
    """Tells whether a name is a participle and nothing else, and no term of the field.

    `AllTrialsFailed` has a subject, `Failed` has none.
    """
    word = name.strip("_0123456789")
    if word.lower() in words.FIELD_TERMS or re.search("[a-z][A-Z]", word):
        return False
    return words.is_participle(word.lower())
