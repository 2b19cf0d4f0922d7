"""Ends of commands: one clear sentence where the input is to blame."""

from __future__ import annotations

import errno
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer

BAD_INPUT = 2
INTERRUPT_STATUS = 130
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def bad_input(hint: str = "", config: Path | None = None, *also: type[Exception]) -> Iterator[None]:
    """Ends the program with one clear sentence where the input is to blame, or a disk that is full, or Ctrl-C.

    Args:
        hint: way to continue once there is room, or after Ctrl-C.
        config: file that mistakes at keys of the configuration are in.
        also: further exceptions whose message is such a sentence.
    """
    try:
        if config is None:
            yield
        else:
            from autotune.config import in_file

            with in_file(config):
                yield
    except KeyboardInterrupt:
        if not hint:
            raise
        typer.echo(f"stopped; every finished trial is kept. {hint}", err=True)
        raise typer.Exit(INTERRUPT_STATUS) from None
    except OSError as error:
        if nobody_reads(error):
            raise
        full = error.errno in NO_ROOM
        place = error.filename or ("a file must have room" if full else "")
        sentence = f"{place}: {error.strerror}" if place else str(error)
        fail(f"{sentence}. {hint}" if full and hint else sentence)
    except Exception as error:
        if not isinstance(error, (*_list_errors(), *also)):
            raise
        fail(f"{error}. {hint}" if hint and isinstance(error, _full()) else str(error))


def nobody_reads(error: Exception) -> bool:
    """Tells the error of a reader of our output that is gone, as `head` is: such a program ends without a word.

    Click ends it so where the error gets there. Another process's pipe may break, too, which is an error like any.
    """
    if not isinstance(error, BrokenPipeError):
        return False
    poll = select.poll()
    for descriptor in (1, 2):
        poll.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def fail(sentence: str) -> NoReturn:
    """Ends the program as bad input does."""
    typer.echo(sentence, err=True)
    raise typer.Exit(BAD_INPUT)


def _full() -> type[Exception]:
    from measure.errors import FullError

    return FullError


def _list_errors() -> tuple[type[Exception], ...]:
    from autotune.config import ConfigError
    from autotune.tracking.store import StoreError
    from autotune.tuner.database.entry import DatabaseError
    from costmodel.dataset.errors import DatasetError
    from costmodel.models.errors import CostModelError
    from measure.errors import MeasureError
    from search_space.extras import MissingExtra
    from targets.manifest import ExecutableError

    found = (ConfigError, MeasureError, ExecutableError, StoreError, DatasetError, CostModelError, MissingExtra)
    return (*found, DatabaseError)
