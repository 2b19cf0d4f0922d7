"""Things that are closed at the end of a `with` block."""

from __future__ import annotations

from typing import Self


class Closing:
    """Has a `close`, which ends a `with` block."""

    def close(self) -> None:
        """Lets go of what it holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
