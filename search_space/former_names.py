"""Former names of modules and of what is in them, which keep working for one release with a `DeprecationWarning`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class FormerNames(MetaPathFinder, Loader):
    """A finder of modules by their former names: an import of one returns the module of the new name.

    Args:
        names: former name → new name; the modules below a former name are below the new one.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = sorted(names.items(), reverse=True)  # a name precedes its own prefixes

    def new_name(self, name: str) -> str | None:
        """Returns the current name of a module; None if it did not move."""
        for former, new in self._names:
            if name == former or name.startswith(f"{former}."):
                return new + name[len(former) :]
        return None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if self.new_name(fullname) is None else ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        new = str(self.new_name(module.__name__))
        warnings.warn(f"{module.__name__} is now {new}", DeprecationWarning, stacklevel=2)
        sys.modules[module.__name__] = import_module(new)  # in place of the empty module that Python made for the name


def serve_former_names(names: Mapping[str, str]) -> None:
    """Makes imports of former names return the modules of the new names.

    Args:
        names: former name → new name.
    """
    sys.meta_path.insert(0, FormerNames(names))  # before the finder of files, which may find a leftover folder


def former_attributes(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Makes the `__getattr__` of a module whose names have changed: a former name gives the new one, with a warning.

    Args:
        module: its name.
        names: former name → new name.
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is now {names[name]}", DeprecationWarning, stacklevel=2)
        return getattr(sys.modules[module], names[name])

    return get


class FormerAttribute:
    """A former name of an attribute, assigned in a class's body: reading it gives the current attribute, and warns.

    Args:
        name: current name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._former_name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._former_name = f"{owner.__name__}.{name}"

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        warnings.warn(f"{self._former_name} is now {self._name}", DeprecationWarning, stacklevel=2)
        return getattr(instance, self._name)
