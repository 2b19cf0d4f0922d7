"""Charts as inline SVG: colours come from the page's style sheet, so that they follow dark mode and print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 520, 250
LEFT, RIGHT, TOP, BOTTOM = 62, 22, 12, 40
SERIES = 8
"""Series with a style of their own; further ones reuse them."""
MOST_DOTS = 600
"""Dots of a series; every so many-th is drawn where there are more."""


@dataclass(frozen=True)
class Curve:
    """One run in a chart.

    Attributes:
        name: label for the reader who points at it.
        number: number of its colour and its dashes.
        steps: (x, y) at which y falls, x rising.
        dots: (x, y) of every measurement.
        end: x up to which the last y holds.
        mark: (x, y, low, high) of another measurement, which is no part of the line, with its bounds; None: no mark.
    """

    name: str
    number: int
    steps: Sequence[tuple[float, float]]
    dots: Sequence[tuple[float, float]]
    end: float
    mark: tuple[float, float, float, float] | None = None


def step_chart(title: str, x_label: str, y_label: str, curves: Sequence[Curve]) -> str:
    """Draws figures that fall step by step, on a logarithmic axis; returns "" if there is nothing to draw.

    Args:
        title: text for screen readers.
        x_label, y_label: labels of the axes, with units.
        curves: curves; a curve without steps is left out.
    """
    curves = [curve for curve in curves if curve.steps]
    if not curves:
        return ""
    drawn = [y for curve in curves for _, y in curve.steps]
    drawn += [y for curve in curves if curve.mark is not None for y in curve.mark[1:]]
    low, high = min(drawn), max(drawn)
    seen = [y for curve in curves for _, y in curve.dots]
    high = max(high, min(max(seen, default=high), 10 * low))  # what is far slower is drawn at the edge
    low, high = low / 1.1, high * 1.1
    right = max(curve.end for curve in curves) or 1.0

    def position(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (WIDTH - LEFT - RIGHT) * x / right
        up = (math.log(min(y, high)) - math.log(low)) / (math.log(high) - math.log(low))
        return round(across, 1), round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * up, 1)

    parts = frame(
        title,
        (x_label, y_label),
        [(position(value, high)[0], f"{value:g}", "middle") for value in linear_ticks(right)],
        [(position(0, value)[1], f"{value:g}") for value in log_ticks(low, high)],
    )
    for curve in curves:
        every = max(1, math.ceil(len(curve.dots) / MOST_DOTS))
        dots = "".join("M{} {}h0".format(*position(x, y)) for x, y in curve.dots[::every])
        if dots:
            parts.append(f'<path class="dots s{curve.number % SERIES}" d="{dots}"/>')
    for curve in curves:
        x, y = position(*curve.steps[0])
        line = f"M{x} {y}"
        for step in curve.steps[1:]:
            x, y = position(*step)
            line += f"H{x}V{y}"
        line += f"H{position(curve.end, high)[0]}"
        last = curve.steps[-1]
        label = f"{curve.name}: {last[1]:.4g} at {last[0]:.4g}"
        parts.append(f'<path class="line s{curve.number % SERIES}" d="{line}"><title>{escape(label)}</title></path>')
        if curve.mark is not None:
            at, value, least, most = curve.mark
            (x, y), (_, under), (_, over) = position(at, value), position(at, least), position(at, most)
            label = f"{curve.name}, timed again: {value:.4g}, quartiles {least:.4g} and {most:.4g}"
            style = f"s{curve.number % SERIES}"
            parts.append(f'<path class="error {style}" d="M{x} {under}V{over}"/>')
            parts.append(f'<path class="mark {style}" d="M{x} {y}h0"><title>{escape(label)}</title></path>')
    return "".join([*parts, "</svg>"])


def frame(
    title: str,
    labels: tuple[str, str],
    columns: Sequence[tuple[float, str, str]],
    rows: Sequence[tuple[float, str]],
) -> list[str]:
    """Begins a chart: the parts of an SVG up to the data, without its end.

    Args:
        title: text for screen readers.
        labels: labels of the horizontal and of the vertical axis.
        columns: x, text and anchor of each vertical line of the grid.
        rows: y and text of each horizontal line of the grid.
    """
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
    ]
    for y, text in rows:
        parts.append(f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{text}</text>')
    for x, text, anchor in columns:
        parts.append(f'<path class="grid" d="M{x} {TOP}V{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 15}" text-anchor="{anchor}">{text}</text>')
    middle = (TOP + HEIGHT - BOTTOM) // 2
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) // 2}" y="{HEIGHT - 4}" text-anchor="middle">{labels[0]}</text>')
    parts.append(f'<text transform="translate(12 {middle}) rotate(-90)" text-anchor="middle">{labels[1]}</text>')
    return parts


def bar(title: str, parts: Sequence[tuple[str, float]]) -> str:
    """Draws a bar of shares; returns "" if all amounts are 0.

    Args:
        title: text for screen readers.
        parts: (name, amount) from left to right.
    """
    total = sum(amount for _, amount in parts)
    if not total > 0:
        return ""
    lines = [
        f'<svg class="bar" viewBox="0 0 {WIDTH} 20" preserveAspectRatio="none" role="img" aria-label="{escape(title)}">'
    ]
    x = 0.0
    for number, (name, amount) in enumerate(parts):
        width = WIDTH * amount / total
        label = f"{name} {amount / total:.1%}"
        lines.append(
            f'<rect class="s{number % SERIES}" x="{x:.1f}" width="{width:.1f}" height="20">'
            f"<title>{escape(label)}</title></rect>"
        )
        x += width
    return "".join([*lines, "</svg>"])


def log_ticks(low: float, high: float) -> list[float]:
    """Chooses round values of a logarithmic axis between `low` and `high`, at least two if the axis has them."""
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7), tuple(k / 10 for k in range(10, 100))):
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [float(f"{step}e{decade}") for decade in decades for step in steps]
        ticks = [value for value in ticks if low <= value <= high]
        if len(ticks) >= 3:
            break
    return ticks[:: max(1, math.ceil(len(ticks) / 7))]


def linear_ticks(right: float) -> list[float]:
    """Chooses four to eight round values from 0 to at most `right`."""
    size = 10.0 ** math.floor(math.log10(right))
    step = next(size * part for part in (0.1, 0.2, 0.25, 0.5, 1, 2, 5) if right / (size * part) <= 7)
    return [float(f"{step * k:.12g}") for k in range(math.floor(right / step + 1e-9) + 1)]
