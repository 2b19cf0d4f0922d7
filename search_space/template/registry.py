"""Templates by name. Modules in `LIBRARY` are imported when first requested; other templates register on definition."""

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
"""Templates defined so far, by name."""


def register(template: Template) -> None:
    """Registers a template under its name, in place of an earlier one of that name."""
    TEMPLATES[template.name] = template


def get(name: str) -> Template:
    """Returns the template with a name.

    Raises:
        ValueError: no template has the name; the message suggests the nearest one.
    """
    if name not in TEMPLATES and name in LIBRARY:
        import_module(LIBRARY[name])
    return TEMPLATES[choice("template", name, sorted({*TEMPLATES, *LIBRARY}))]
