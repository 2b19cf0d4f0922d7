"""How commands end: one clear sentence where the input is to blame."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

BAD_INPUT = 2
INTERRUPTED = 130


@contextmanager
def bad_input() -> Iterator[None]:
    """Ends the program with one clear sentence where the input is to blame."""
    try:
        yield
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception as error:
        if not isinstance(error, _blamable()):
            raise
        fail(str(error))


def fail(sentence: str) -> NoReturn:
    """Ends the program as bad input does."""
    typer.echo(sentence, err=True)
    raise typer.Exit(BAD_INPUT)


def _blamable() -> tuple[type[Exception], ...]:
    from autotune.config import ConfigError
    from autotune.executable import ExecutableError
    from autotune.tracking.store import StoreError
    from costmodel.dataset.errors import DatasetError
    from measure.errors import MeasureError

    return (ConfigError, MeasureError, ExecutableError, StoreError, DatasetError)
