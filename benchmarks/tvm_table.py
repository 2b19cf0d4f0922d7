"""Table of tuning beside TVM's: results of both after as many trials, and the time of the searches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.figures import halves_difference, ratio_text, with_processors
from benchmarks.interleave import geometric_mean
from benchmarks.markdown import table
from benchmarks.tuning import INFORMED_NOTE

NEARLY = (
    "`nearly there`: seconds until the best schedule so far reaches 95 % of the final speed, by each search's own "
    "timings. All trials of a search count as equally long."
)


def trial_counts(rows: Iterable[Mapping[str, Any]]) -> list[int]:
    """Lists numbers of trials after which some rows were timed, in rising order."""
    labels = {label for row in rows for label in row.get("seconds", {})}
    return sorted(int(label.partition(" ")[2]) for label in labels if label.startswith("ours "))


def ratio(row: Mapping[str, Any], trials: int) -> tuple[float | None, float]:
    """Computes TVM's seconds over ours, both after so many trials, and their noise; None where TVM has none."""
    labels = f"ours {trials}", f"tvm {trials}"
    if not set(labels) <= row.get("seconds", {}).keys():
        return None, 0.0
    ours, theirs = (row["seconds"][label] for label in labels)
    return theirs / ours, halves_difference(row, *labels)


def tvm(document: Mapping[str, Any]) -> str:
    """Formats our results and MetaSchedule's after every number of trials, both rates of trials, and refusals."""
    informed = any(
        label.startswith("shipped ") for row in document["rows"].values() for label in row.get("seconds", {})
    )
    header = ["operator", "trials", "autotune ms", "TVM ms", "ratio"]
    header += ["with shipped knowledge ms"] if informed else []
    header += ["ours s", "TVM s", "trials/s", "TVM's"]
    header += ["nearly there after s", "TVM after s"]
    lines: list[list[object]] = []
    of: list[Mapping[str, Any]] = []
    refused = []
    for row in document["rows"].values():
        if "refused" in row:
            refused.append(f"{row['title']} ({row['refused'].partition(', but')[0]})")
            continue
        took, seconds = row["tuning"], row["seconds"]
        counts = trial_counts([row])
        for trials in counts:
            speed_up, noise = ratio(row, trials)
            if speed_up is None:
                continue
            last = trials == counts[-1]
            of.append(row)
            lines.append(
                [
                    row["title"],
                    trials,
                    *(f"{seconds[f'{who} {trials}'] * 1e3:.3f}" for who in ("ours", "tvm")),
                    ratio_text(speed_up, noise),
                    *(_format_shipped(seconds, trials) if informed else ()),
                    *(f"{took[name]['seconds']:.0f}" if last else "" for name in ("ours", "tvm")),
                    *(f"{took[name]['trials_per_second']:.1f}" if last else "" for name in ("ours", "tvm")),
                    *(_nearly(took[name]) if last else "" for name in ("ours", "tvm")),
                ]
            )
    parts = [means(document), table(*with_processors(header, lines, of))]
    parts += [said, NEARLY] if (said := cost(document)) else []
    parts += [INFORMED_NOTE] if said and not informed else []
    return "\n\n".join(parts + ([f"Refused by TVM's definitions here: {'; '.join(refused)}."] if refused else []))


def means(document: Mapping[str, Any], single: bool = True) -> str:
    """Returns the geometric mean of the ratios after every number of trials, of all rows and of `single` classes."""
    ratios: dict[tuple[int, str], list[float]] = {}
    for row in document["rows"].values():
        for trials in trial_counts([row]):
            speed_up, _ = ratio(row, trials)
            if speed_up is not None:
                for kind in ("all", row["class"])[: 1 + single]:
                    ratios.setdefault((trials, kind), []).append(speed_up)
    lines = [
        [f"{kind}, {trials:,} trials", f"{geometric_mean(speed_up):.2f}x", f"{min(speed_up):.2f}x", len(speed_up)]
        for (trials, kind), speed_up in sorted(ratios.items(), key=lambda item: (item[0][1] != "all", item[0]))
    ]
    return table(["class", "geometric mean", "lowest", "rows"], lines)


def tvm_threads(document: Mapping[str, Any]) -> str:
    """Formats TVM's results with its worker bound to a core, its default, and with none bound, beside ours."""
    header = ["operator", "trials", "autotune ms", "TVM ms", "unbound ms", "TVM over unbound"]
    lines: list[list[object]] = []
    of: list[Mapping[str, Any]] = []
    for row in document["rows"].values():
        for trials in trial_counts([row]):
            labels = [f"{who} {trials}" for who in ("ours", "bound", "free")]
            ours, bound, free = (row["seconds"][label] for label in labels)
            of.append(row)
            shown = [f"{seconds * 1e3:.3f}" for seconds in (ours, bound, free)]
            lines.append([row["title"], trials, *shown, ratio_text(bound / free, halves_difference(row, *labels[1:]))])
    took = {way: sum(row["tuning"][way]["seconds"] for row in document["rows"].values()) for way in ("bound", "free")}
    searches = f"Searches took {took['bound']:,.0f} s as installed, {took['free']:,.0f} s unbound."
    return "\n\n".join([threads_means(document), table(*with_processors(header, lines, of)), searches])


def threads_means(document: Mapping[str, Any]) -> str:
    """Returns the geometric means of `tvm_threads`."""
    ratios: dict[tuple[str, int], list[float]] = {}
    for row in document["rows"].values():
        for trials in trial_counts([row]):
            ours, bound, free = (row["seconds"][f"{who} {trials}"] for who in ("ours", "bound", "free"))
            ratios.setdefault(("TVM over unbound", trials), []).append(bound / free)
            ratios.setdefault(("the faster of both over ours", trials), []).append(min(bound, free) / ours)
    lines = [
        [f"{trials:,}, {what}", f"{geometric_mean(found):.2f}x", f"{min(found):.2f}x", f"{max(found):.2f}x", len(found)]
        for (what, trials), found in sorted(ratios.items())
    ]
    return table(["trials, ratio", "geometric mean", "lowest", "highest", "rows"], lines)


def search_seconds(row: Mapping[str, Any]) -> tuple[float, float]:
    """Returns the seconds of our search of a row and of TVM's."""
    return row["tuning"]["ours"]["seconds"], row["tuning"]["tvm"]["seconds"]


def cost(document: Mapping[str, Any]) -> str:
    """Says how long the searches took, and how many times as many trials a second ours made; "" without searches."""
    searched = [row for row in document["rows"].values() if "tuning" in row]
    if not searched:
        return ""
    ours, theirs = map(sum, zip(*map(search_seconds, searched), strict=True))
    took = [row["tuning"] for row in searched]
    rates = [each["ours"]["trials_per_second"] / each["tvm"]["trials_per_second"] for each in took]
    return (
        f"All our searches took {ours:,.0f} s, TVM's {theirs:,.0f} s: {theirs / ours:.1f} times as long. We measure "
        f"{geometric_mean(rates):.1f} times as many trials a second ({min(rates):.1f} to {max(rates):.1f})."
    )


def _format_shipped(seconds: Mapping[str, float], trials: int) -> list[str]:
    """Formats milliseconds of a search with shipped knowledge; empty if a row has none."""
    label = f"shipped {trials}"
    return [f"{seconds[label] * 1e3:.3f}" if label in seconds else ""]


def _nearly(took: Mapping[str, Any]) -> str:
    """Formats seconds until a search was nearly where it ended."""
    return f"{took['nearly_after'] / took['trials_per_second']:.1f}" if "nearly_after" in took else ""
