"""Figures as a reader sees them, the same wherever one is shown."""

from __future__ import annotations

import math

_UNITS = ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s"))
_DIGITS = 4  # significant digits
_LONG_UNITS = ((31_557_600, "years"), (86_400, "days"), (3_600, "h"), (60, "min"))


def latency(seconds: float | None, none: str = "-") -> str:
    """Formats seconds of an execution in the unit that suits their size: `182.3 ns`, `12.34 µs`, `1.235 ms`, `2.000 s`.

    Args:
        seconds: latency of one execution.
        none: text for None and NaN.
    """
    if seconds is None or math.isnan(seconds):
        return none
    rounded = float(f"{seconds:.{_DIGITS - 1}e}")  # before choosing the unit: 999.99 ns are 1.000 µs
    scale, unit = select_unit(rounded)
    value = rounded * scale
    if not math.isfinite(value):
        return f"{value} {unit}"
    decimals = _DIGITS - 1 if not value else min(_DIGITS - 1, max(0, _DIGITS - 1 - math.floor(math.log10(abs(value)))))
    return f"{value:.{decimals}f} {unit}"


def select_unit(seconds: float) -> tuple[float, str]:
    """Returns the factor that converts seconds to the unit that suits their size, and that unit."""
    size, unit = next((of for of in reversed(_UNITS) if abs(seconds) >= of[0] * (1 - 1e-9)), _UNITS[0])
    return round(1 / size), unit


def duration(seconds: float) -> str:
    """Formats elapsed seconds: `12.3 s`, `4 min 5 s`, `2 h 10 min`."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def forecast(seconds: float) -> str:
    """Formats remaining seconds in the largest unit of which there are at least two: `90 s`, `5 h`, `27 years`."""
    size, unit = next((of for of in _LONG_UNITS if seconds >= 2 * of[0]), (1, "s"))
    return f"{seconds / size:,.0f} {unit}"


def certainty(apart: float) -> str:
    """Says how certain times are whose halves lie a share of the faster one apart: a share, or a factor from 2 on."""
    return f"certain to {share(apart)} only" if apart < 1 else f"certain to a factor of {1 + apart:.1f} only"


def share(value: float | None, none: str = "-") -> str:
    """Formats a share in per cent, with a decimal where it is small; `none` for None and NaN."""
    if value is None or math.isnan(value):
        return none
    return f"{value:.1%}" if 0 < value < 0.0995 else f"{value:.0%}"
