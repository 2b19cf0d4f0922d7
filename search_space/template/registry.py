"""Templates by name. Those of the library are imported when first asked for; others register where they are defined."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from search_space.operators.checks import choice

if TYPE_CHECKING:
    from search_space.template.base import Template

LIBRARY: dict[str, str] = {
    "conv2d.cpu": "search_space.template.library.conv2d_cpu",
    "conv2d.vta": "search_space.template.library.conv2d_vta",
}
"""Name -> module that defines it."""

TEMPLATES: dict[str, Template] = {}
"""Those that are defined by now."""


def register(template: Template) -> None:
    """Makes a template known by its name; the last one of a name counts."""
    TEMPLATES[template.name] = template


def get(name: str) -> Template:
    """The template of that name.

    Raises:
        ValueError: none has it; names the nearest one.
    """
    if name not in TEMPLATES and name in LIBRARY:
        import_module(LIBRARY[name])
    return TEMPLATES[choice("template", name, sorted({*TEMPLATES, *LIBRARY}))]
