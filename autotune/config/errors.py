"""Mistakes in a configuration: sentences, each at the key that it is about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class ConfigError(ValueError):
    """A configuration that cannot be run: one sentence for each mistake, `key: sentence`.

    Args:
        sentence: states the rule and the value.
        at: dotted path of the key; "": the configuration as a whole; None: no key of a file.

    Attributes:
        mistakes: (`at`, sentence) of each.
    """

    def __init__(self, sentence: str, at: str | None = None) -> None:
        self.mistakes: Sequence[tuple[str | None, str]] = [(at, sentence)]
        super().__init__(sentence)

    @classmethod
    def of(cls, mistakes: Sequence[tuple[str | None, str]]) -> ConfigError:
        """Joins several mistakes in one error."""
        error = cls("")
        error.mistakes = mistakes
        return error

    def __str__(self) -> str:
        return "\n".join(f"{at}: {sentence}" if at else sentence for at, sentence in self.mistakes)


@contextmanager
def errors_at(key: str) -> Iterator[None]:
    """Turns a refusal of values into a ConfigError at the key of the values."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ConfigError(str(error), key) from error


@contextmanager
def in_file(path: str | Path) -> Iterator[None]:
    """Names the file in front of mistakes at its keys: `file:key: sentence`."""
    try:
        yield
    except ConfigError as error:
        named = [(None, text if at is None else f"{path}{at and ':'}{at}: {text}") for at, text in error.mistakes]
        raise ConfigError.of(named) from error
