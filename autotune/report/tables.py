"""Tables that fit the terminal: where there is no room for all columns, those that matter least are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPE_WIDTH = 160
"""Characters of a line where there is no terminal."""

_PADDING = 2  # characters beside a column


@dataclass(frozen=True)
class Column:
    """A column of texts.

    Attributes:
        title: above it.
        cells: texts from top to bottom.
        rank: 0 is always shown; of the others the highest go first.
        left: whether texts are aligned at the left.
    """

    title: str
    cells: Sequence[str]
    rank: int = 0
    left: bool = False

    @property
    def width(self) -> int:
        """Characters that it takes."""
        from rich.cells import cell_len

        return max(cell_len(text) for text in (self.title, *self.cells)) + _PADDING


def console_width(console: Console) -> int:
    """Returns the characters of a line: the terminal's, or many without a terminal."""
    return console.width if console.is_terminal else PIPE_WIDTH


def print_table(columns: Sequence[Column]) -> Console:
    """Prints a table that fits standard output; returns the console, to print below it."""
    from rich.console import Console

    console = Console()
    console.width = width = console_width(console)
    console.print(fit_table(columns, width))
    return console


def fit_table(columns: Sequence[Column], width: int, foot: bool = False) -> Table:
    """Makes a table of at most `width` characters; a first column that is too wide even then is cut with an ellipsis.

    Args:
        columns: columns from left to right.
        width: characters of a line.
        foot: whether the last row is one for all.
    """
    from rich.table import Table

    shown = list(columns)
    while sum(column.width for column in shown) > width and any(column.rank for column in shown):
        shown.remove(max(reversed(shown), key=lambda column: column.rank))
    table = Table(box=None, header_style="bold")
    for column in shown:
        wraps = column is shown[0]
        table.add_column(
            column.title,
            justify="left" if column.left else "right",
            no_wrap=True,
            overflow="ellipsis",
            min_width=None if wraps else column.width - _PADDING,
        )
    rows = list(zip(*(column.cells for column in shown), strict=True))
    for row in rows[:-1] if foot else rows:
        table.add_row(*row)
    if foot and rows:
        table.add_section()
        table.add_row(*rows[-1], style="bold")
    return table
