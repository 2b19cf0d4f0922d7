"""YAML that a user wrote: PyYAML's safe loader, with bounds, and without what means something else than it says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError
from yaml.events import AliasEvent
from yaml.nodes import MappingNode, Node, ScalarNode

from search_space.strict_json import INTEGERS

MOST_CHARACTERS = 1 << 20
MOST_NODES = 10_000
"""Values of a document; those of an alias count each time it is used."""
MOST_DEPTH = 32
_LONGEST_NUMBER = 400


class _Loader(yaml.SafeLoader):
    """A loader that refuses repeated keys, aliases that multiply, deep nesting, and numbers that no field could hold.

    Dates are text, as nothing here is a date.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012  (PyYAML's own way to say which texts are what)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth, self._nodes = 0, 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        """Composes a node, and counts it with all of its children."""
        mark, is_alias = self.peek_event().start_mark, self.check_event(AliasEvent)  # type: ignore[no-untyped-call]
        if self._depth >= MOST_DEPTH:
            raise ComposerError(None, None, f"values must be at most {MOST_DEPTH} deep in each other", mark)
        self._depth, before = self._depth + 1, self._nodes
        node = super().compose_node(parent, index)
        self._depth -= 1
        if not is_alias:
            self._nodes += 1
            self._sizes[id(node)] = self._nodes - before
        elif id(node) in self._sizes:
            self._nodes += self._sizes[id(node)]
        else:
            raise ComposerError(None, None, "an alias must not stand within what it stands for", mark)
        if self._nodes > MOST_NODES:
            raise ComposerError(None, None, f"there must be at most {MOST_NODES} values, aliases expanded", mark)
        return node

    def compose_mapping_node(self, anchor: Any) -> MappingNode:
        """Composes a mapping, and refuses repeated keys."""
        node: MappingNode = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            name = (key.tag, key.value) if isinstance(key, ScalarNode) else None
            if name is not None and name in seen:
                raise ComposerError(
                    None, None, f"a key must come once, but got {key.value[:60]!r} again", key.start_mark
                )
            seen |= {name} if name is not None else set()
        return node


def _number(kind: str, read: Callable[[_Loader, Any], Any]) -> Callable[[_Loader, Any], Any]:
    def construct(loader: _Loader, node: Any) -> Any:
        text = loader.construct_scalar(node)
        value = read(loader, node) if len(text) <= _LONGEST_NUMBER else math.inf
        if kind == "int" and not INTEGERS.start <= value < INTEGERS.stop:
            shown = text if len(text) <= 24 else f"one of {len(text)} characters"
            raise ConstructorError(None, None, f"an integer must fit 64 bits, but got {shown}", node.start_mark)
        if kind == "float" and not math.isfinite(value):
            raise ConstructorError(None, None, f"a number must be finite, but got {text[:24]}", node.start_mark)
        return value

    return construct


_Loader.add_constructor("tag:yaml.org,2002:int", _number("int", yaml.SafeLoader.construct_yaml_int))
_Loader.add_constructor("tag:yaml.org,2002:float", _number("float", yaml.SafeLoader.construct_yaml_float))


def loads(text: str) -> Any:
    """Loads the value of a YAML text.

    Raises:
        yaml.YAMLError: no YAML, or past the bounds of this module; `problem` and `problem_mark` say what and where.
    """
    if len(text) > MOST_CHARACTERS:
        raise ComposerError(None, None, f"it must have at most {MOST_CHARACTERS} characters, but got {len(text)}", None)
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    except (ValueError, KeyError, AttributeError):  # of PyYAML, for a tag such as !!bool before any other text
        raise ConstructorError(None, None, "each value must be what its tag says", None) from None
    finally:
        loader.dispose()
