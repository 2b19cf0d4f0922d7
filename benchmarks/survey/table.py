"""Tables of a survey: the number of right models, their speed beside the best peer, and a line for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.figures import halves_difference, ratio_text
from benchmarks.interleave import geometric_mean
from benchmarks.markdown import table
from benchmarks.survey.log import STATUSES, budget_text

Row = Mapping[str, Any]

SLOW = 0.95
"""A ratio below which the cause is to be found."""

WORST = 10
IDLE = 1e-6
"""Seconds; a model of the sealed list whose bound is lower has a constant output, and counts in no mean."""


def ratio(row: Row) -> float | None:
    """Computes seconds of the fastest peer over ours; None where either was not timed, or ours is not right."""
    return ratio_and_noise(row)[0]


def ratio_and_noise(row: Row) -> tuple[float | None, float]:
    """Returns the ratio of a row and the noise of its two times."""
    seconds = row.get("seconds", {})
    best = min((name for name in seconds if name != "autotune"), key=seconds.__getitem__, default=None)
    if row["status"] != "right" or best is None:
        return None, 0.0
    return seconds[best] / seconds["autotune"], halves_difference(row, "autotune", best)


def summary(rows: Iterable[Row]) -> str:
    """Summarises the models: how many are right, their geometric mean beside the best peer, and the worst ones."""
    rows = list(rows)
    counts = Counter(row["status"] for row in rows)
    shown = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    ratios = {row["name"]: found for row in rows if (found := ratio(row)) is not None}
    text = f"{len(rows)} models: {shown}."
    if not ratios:
        return text
    slow = sorted((name for name in ratios if ratios[name] < SLOW), key=ratios.__getitem__)
    mean = geometric_mean(list(ratios.values()))
    text += f" Geometric mean over {len(ratios)} beside the best peer {mean:.2f}x, {len(slow)} under {SLOW:.2f}x"
    worst = ", ".join(f"{name} {ratios[name]:.2f}x" for name in slow[:WORST])
    return f"{text}: {worst}." if worst else f"{text}."


def survey(document: Mapping[str, Any]) -> str:
    """Formats a summary and a table for each processor, number of threads and of trials."""
    return "\n\n".join(f"{said}\n\n{_lines(rows)}" for said, rows in _groups(document))


SEALED_PEERS = {
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "torch": "PyTorch",
    "torch-inductor": "Inductor",
}
"""Peer of the sealed list → its column, in milliseconds."""


def sealed_list(document: Mapping[str, Any]) -> str:
    """Formats the sealed list: summary and rows of the first run, and ratios after mends in a column of their own."""
    return "\n\n".join(f"{said}\n\n{_sealed_lines(rows)}" for said, rows in _sealed_groups(document))


def _sealed_groups(document: Mapping[str, Any]) -> list[tuple[str, list[Row]]]:
    """Returns rows of each processor, and sentences about the first run and the one after mends."""
    groups: dict[str, list[Row]] = {}
    for row in document["rows"].values():
        groups.setdefault(row["cpu"], []).append(row)
    summaries = []
    for cpu, rows in sorted(groups.items()):
        again = [row.get("again", row) for row in rows]
        said = [f"**{cpu}**, {rows[0]['threads']} threads. First run, {_sealed_summary(rows)}"]
        if any("again" in row for row in rows):
            said.append(f"After mends, {_sealed_summary(again)}")
        summaries.append((" ".join(said), rows))
    return summaries


def _sealed_summary(rows: Sequence[Row]) -> str:
    counts = Counter(row["status"] for row in rows)
    shown = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    commits = ", ".join(dict.fromkeys(row["commit"] for row in rows if row["commit"]))
    text = f"commit {commits}: {len(rows)} models, {shown}."
    idle = [row["name"] for row in rows if row.get("bound_seconds", IDLE) < IDLE]
    rows = [row for row in rows if row["name"] not in idle]
    ratios = [each for row in rows if (each := ratio(row)) is not None]
    if not ratios:
        return text
    means = []
    for library in dict.fromkeys(row["library"] for row in rows):
        some = [each for row in rows if row["library"] == library and (each := ratio(row)) is not None]
        means += [f"{library} {geometric_mean(some):.2f}x"] if some else []
    ends = f"{min(ratios):.2f}x to {max(ratios):.2f}x"
    under = sum(value < 1 for value in ratios)
    text += f" Geometric mean {geometric_mean(ratios):.2f}x ({ends}; {', '.join(means)}), {under} under 1.00x."
    return f"{text} It leaves out {', '.join(idle)}, which takes under a microsecond." if idle else text


def _sealed_lines(rows: Sequence[Row]) -> str:
    header = [
        *FIRST_HEADS,
        "autotune ms",
        *(f"{title} ms" for title in SEALED_PEERS.values()),
        "ratio, first run",
        "after mends",
        "of bound",
        "loses most",
    ]
    lines = []
    for row in sorted(rows, key=lambda row: (row["library"], row["name"])):
        seconds = row.get("seconds", {})
        lines.append(
            [
                *_first_cells(row),
                *(_ms(seconds.get(name)) for name in ("autotune", *SEALED_PEERS)),
                ratio_text(*ratio_and_noise(row)),
                _outcome(row["again"]) if "again" in row else "",
                _percent(row.get("bound_seconds"), seconds.get("autotune")),
                _name_layer(_find_slowest(row)),
            ]
        )
    return table(header, lines)


def _outcome(row: Row) -> str:
    """Formats the ratio of a row that is right, or how it ended."""
    return ratio_text(*ratio_and_noise(row)) if row["status"] == "right" else _cell(f"{row['status']}: {row['reason']}")


def overview(document: Mapping[str, Any]) -> str:
    """Returns the summaries alone."""
    return "\n\n".join(said for said, _ in _groups(document))


def _groups(document: Mapping[str, Any]) -> list[tuple[str, list[Row]]]:
    """Returns rows of each processor, number of threads and of trials, and their summary."""
    groups: dict[tuple[str, int, str], list[Row]] = {}
    for row in document["rows"].values():
        groups.setdefault((row["cpu"], row["threads"], budget_text(row)), []).append(row)
    summaries = []
    for (cpu, threads, budget), rows in sorted(groups.items(), key=lambda item: item[0]):
        commits = ", ".join(dict.fromkeys(row["commit"] for row in rows if row["commit"]))
        title = f"**{cpu}**, {threads} threads, {budget}{f' (commit {commits})' if commits else ''}."
        summaries.append((f"{title} {summary(rows)}", rows))
    return summaries


def _lines(rows: Sequence[Row]) -> str:
    header = [
        *FIRST_HEADS,
        "autotune float32 ms",
        "ONNX Runtime float32 ms",
        "OpenVINO float32 ms",
        "ratio to best",
        "of bound",
        "loses most",
        "its share",
        "of its bound",
    ]
    lines = []
    for row in sorted(rows, key=lambda row: (STATUSES.index(row["status"]), row["library"], row["name"])):
        seconds = row.get("seconds", {})
        ours = seconds.get("autotune")
        first = _find_slowest(row)
        lines.append(
            [
                *_first_cells(row),
                *(_ms(seconds.get(name)) for name in ("autotune", "onnxruntime", "openvino")),
                "" if (found := ratio(row)) is None else f"{found:.2f}x",
                _percent(row.get("bound_seconds"), ours),
                _name_layer(first),
                "" if first is None else f"{first['share'] * 100:.0f} %",
                "" if first is None else _percent(first["bound_seconds"], first["seconds"]),
            ]
        )
    return table(header, lines)


FIRST_HEADS = ("model", "library", "outcome", "error", "compiled in s")


def _first_cells(row: Row) -> list[str]:
    """Returns the cells of a row below `FIRST_HEADS`."""
    return [
        row["name"],
        row["library"],
        _cell(f"{row['status']}: {row['reason']}" if row["reason"] else row["status"]),
        "" if row.get("error") is None else f"{row['error']:.0e}",
        "" if row.get("compile_seconds") is None else f"{row['compile_seconds']:.1f}",
    ]


def _find_slowest(row: Row) -> Mapping[str, Any] | None:
    """Returns the layer that loses most against its bound."""
    return next(iter(row.get("layers", ())), None)


def _name_layer(layer: Mapping[str, Any] | None) -> str:
    return "" if layer is None else _cell(f"{layer['name']} ×{layer['count']}")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"


def _percent(part: float | None, total: float | None) -> str:
    return f"{part / total * 100:.0f} %" if part is not None and total else ""
