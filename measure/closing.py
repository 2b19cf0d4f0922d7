"""Base class of objects that are closed at the end of a `with` block."""

from __future__ import annotations

from typing import Self


class Closing:
    """A base class whose `close` ends a `with` block."""

    def close(self) -> None:
        """Releases all resources."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
