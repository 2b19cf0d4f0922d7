"""What is wrong with a configuration, and where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class ConfigError(ValueError):
    """A configuration that cannot be run: one sentence for each mistake, `file:path: message`."""


@contextmanager
def errors_at(where: str) -> Iterator[None]:
    """Turns a refusal of values into a ConfigError that says where the values stand."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{where}: {error}") from error
