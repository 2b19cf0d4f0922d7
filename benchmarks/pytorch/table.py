"""Table of models through `torch.compile`: outputs, seconds of compiling and milliseconds of each runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import halves_difference, ratio_text, with_processors
from benchmarks.interleave import geometric_mean
from benchmarks.markdown import table
from benchmarks.pytorch.runtime import EAGER, INDUCTOR, INDUCTOR_BEST, INDUCTOR_FROZEN, OURS, TITLES
from benchmarks.schedules import OWN, SURVEY_MODELS

Row = Mapping[str, Any]

RIGHT = 1e-4
"""Largest error of a right output: sums in another order cause 1e-7 to 1e-5, a wrong operator 1e-2 and more."""

COMPILERS = (INDUCTOR, INDUCTOR_FROZEN, INDUCTOR_BEST)
SLOW = 0.9

SENTENCES = (
    "`error`: largest difference from eager PyTorch, divided by the largest output. Compile times are those of the "
    "first call, with an empty cache and with the cache that this call has filled. `Inductor` is "
    "`torch.compile(model)`; frozen, its weights are constants and images are channels-last; with `max-autotune`, "
    "its products are the fastest of several kernels, too. `learned from` marks models that filled the shipped "
    "database. A ratio is a runtime's time divided by ours. ≈: within measurement noise."
)


def ratio(row: Row, name: str, peer: str) -> float | None:
    """Computes a peer's seconds over ours; None where either is unknown, or our output is not right.

    Args:
        row: row of a model.
        name: `seconds`, `cold_seconds` or `warm_seconds`.
        peer: peer of the ratio.
    """
    found = row.get(name, {})
    return found[peer] / found[OURS] if is_right(row) and OURS in found and peer in found else None


def ratio_to_best(row: Row) -> tuple[float | None, float]:
    """Computes the seconds of the fastest peer over ours, and their noise; None as in `ratio`."""
    found = {peer: value for peer in TITLES if peer != OURS and (value := ratio(row, "seconds", peer)) is not None}
    best = min(found, key=found.__getitem__, default=None)
    return (None, 0.0) if best is None else (found[best], halves_difference(row, OURS, best))


def is_right(row: Row) -> bool:
    """Tells whether our output is that of eager PyTorch."""
    error = row.get("errors", {}).get(OURS)
    return error is not None and bool(error <= RIGHT)


def pytorch(document: Mapping[str, Any]) -> str:
    """Formats a summary and the table."""
    rows = list(document["rows"].values())
    return "\n\n".join(part for part in (SENTENCES, overview(document), _lines(rows)) if part)


def overview(document: Mapping[str, Any]) -> str:
    """Returns how many models are right, and the geometric means."""
    rows = list(document["rows"].values())
    return "\n\n".join(part for part in (summary(rows), _means(rows)) if part)


def summary(rows: Sequence[Row]) -> str:
    """Counts right models, lists models that are much slower than Inductor, and explains missing rows."""
    right = sum(map(is_right, rows))
    text = f"{right} of {len(rows)} models are right."
    ratios = {row["name"]: found for row in rows if (found := ratio(row, "seconds", INDUCTOR)) is not None}
    if slow := sorted((name for name in ratios if ratios[name] < SLOW), key=ratios.__getitem__):
        named = ", ".join(f"{name} {ratios[name]:.2f}x" for name in slow)
        text += f" Under {SLOW:.1f}x of Inductor: {named}."
    failed = [f"{row['name']}: {row['failed']}" for row in rows if "failed" in row]
    failed += [f"{TITLES[peer]} on {row['name']}: {why}" for row in rows for peer, why in row["missing"].items()]
    return f"{text} Missing: {'; '.join(failed)}." if failed else text


def _means(rows: Sequence[Row]) -> str:
    ratios_by_title = {"inference, the fastest of all": [ratio_to_best(row)[0] for row in rows]}
    for title, name, peers in (
        ("inference", "seconds", (*COMPILERS, EAGER)),
        ("compiling, empty cache", "cold_seconds", COMPILERS),
        ("compiling, filled cache", "warm_seconds", COMPILERS),
    ):
        ratios_by_title |= {f"{title}, {TITLES[peer]}": [ratio(row, name, peer) for row in rows] for peer in peers}
    lines: list[list[object]] = []
    for beside, ratios in ratios_by_title.items():
        if found := [value for value in ratios if value is not None]:
            slower = sum(value < 1 for value in found)
            lines.append([beside, f"{geometric_mean(found):.2f}x", f"{min(found):.2f}x", slower, len(found)])
    return table(["beside", "geometric mean", "lowest", "we are slower on", "of models"], lines) if lines else ""


def _lines(rows: Sequence[Row]) -> str:
    timed = [name for name in TITLES if any(name in row.get("seconds", {}) for row in rows)]
    compilers = [name for name in TITLES if any(name in row.get("cold_seconds", {}) for row in rows)]
    header = ["model", "library", "learned from", "error"]
    header += [f"{TITLES[name]} ms" for name in timed]
    header += [f"of {TITLES[peer]}" for peer in COMPILERS if peer in timed]
    header += [f"{TITLES[name]} compiles, s" for name in compilers]
    lines: list[list[object]] = []
    rows = sorted(rows, key=lambda row: (row["library"], row["name"]))
    for row in rows:
        error = row.get("errors", {}).get(OURS)
        learned = "yes" if row["name"] in (*OWN, *SURVEY_MODELS) else ""
        cells = [row["name"], row["library"], learned, "" if error is None else f"{error:.0e}"]
        cells += [_number(row.get("seconds", {}).get(name), 1e3, ".2f") for name in timed]
        cells += [
            ratio_text(ratio(row, "seconds", peer), halves_difference(row, OURS, peer))
            for peer in COMPILERS
            if peer in timed
        ]
        cells += [_both(row, name) for name in compilers]
        lines.append(cells)
    return table(*with_processors(header, lines, rows))


def _both(row: Row, name: str) -> str:
    """Formats seconds of compiling from an empty and from a filled cache."""
    found = [_number(row.get(which, {}).get(name), 1, ".1f") for which in ("cold_seconds", "warm_seconds")]
    return " / ".join(each for each in found if each)


def _number(value: float | None, scale: float, form: str) -> str:
    return "" if value is None else f"{value * scale:{form}}"
