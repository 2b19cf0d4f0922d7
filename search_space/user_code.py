"""Code of one's own, given by a name: `FILE.py:NAME` by the path of its file, or `module:NAME`.

Looking up such a name runs its module, so the name must come from the user: never from a record, and never from another
machine.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["attribute", "is_own", "absolute_name"]


def is_own(name: str) -> bool:
    """Tells whether a name has the form of one's own code."""
    return ":" in name


def absolute_name(name: str) -> str:
    """Returns the name with the absolute path of its file, so that it does not depend on the working directory."""
    place, _, attribute = name.rpartition(":")
    return f"{Path(place).resolve()}:{attribute}" if place.endswith(".py") else name


def attribute(name: str, option: str, error: type[ValueError] = ValueError) -> Any:
    """Returns the attribute of a module of one's own that a name selects.

    A module is looked for where Python does, and in the working directory; a file is run once in a process.

    Args:
        name: `FILE.py:NAME` or `module:NAME`.
        option: option that the name was given for; for messages.
        error: class of the errors.

    Raises:
        ValueError: raised as `error`: there is no such file or module, or it has no such name.
    """
    module_name, _, name_in_module = name.rpartition(":")
    if module_name.endswith(".py"):
        if not Path(module_name).is_file():
            raise error(f"`{option}` must name a file that exists, but got {option}={name!r}")
        module = _module_of_file(Path(module_name))
    else:
        try:
            module = _module(module_name)
        except (ModuleNotFoundError, ValueError) as missing:
            if isinstance(missing, ModuleNotFoundError) and missing.name not in (
                module_name,
                module_name.partition(".")[0],
            ):
                raise  # something that the module itself imports
            raise error(f"`{option}` must name a module that can be imported, but got {option}={name!r}") from None
    if not hasattr(module, name_in_module):
        from search_space.operators.checks import nearest  # operators import this module

        hint = nearest(name_in_module, [known for known in vars(module) if not known.startswith("_")])
        raise error(f"`{option}` must name something that {module_name} has, but got {option}={name!r}{hint}")
    return getattr(module, name_in_module)


def _module(location: str) -> ModuleType:
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        return importlib.import_module(location)
    finally:
        sys.path.remove(here)


def _module_of_file(path: Path) -> ModuleType:
    title = f"{path.stem} of {path.resolve()}"
    if title not in sys.modules:
        spec = importlib.util.spec_from_file_location(title, path)
        assert spec is not None and spec.loader is not None, "a .py file has a loader"
        module = importlib.util.module_from_spec(spec)
        sys.modules[title] = module  # dataclasses look their module up
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[title]
            raise
    return sys.modules[title]
