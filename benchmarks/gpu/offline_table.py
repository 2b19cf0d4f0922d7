"""The table of `benchmarks.gpu.offline`."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import table

COMPILATION_TITLES = (
    "compiled to cubins",
    "candidates",
    "kernels",
    "a second",
    "candidates a second",
    "ms a candidate",
)
SCORING_TITLES = (
    "sketches",
    "candidates",
    "scored a second",
    "target",
    "of target",
    "checked a second",
    "trees",
    "rows",
)
STAGES = {"lowered": "lowering", "kernels": "kernels", "text": "text", "nvrtc": "NVRTC"}


def offline(document: dict[str, Any]) -> str:
    """Formats kernels compiled a second, a candidate's time by stage, and candidates scored and checked a second."""
    rows = list(document["rows"].values())
    compiled = [
        [
            row["what"],
            row["candidates"],
            row["kernels"],
            f"{row['per_second']:.1f}",
            f"{row['candidates_per_second']:.1f}",
            _format_stages(row["milliseconds"]),
        ]
        for row in rows
        if row["work"] == "compiled"
    ]
    scored = [
        [
            row["what"],
            row["sketches"],
            f"{row['candidates']:,}",
            f"{row['per_second']:,.0f}",
            f"{row['target']:,}",
            f"{row['per_second'] / row['target']:.1f}x",
            f"{row['checked_per_second']:,.0f}",
            row["trees"],
            f"{row['feature_rows']:.1f}",
        ]
        for row in rows
        if row["work"] == "scored"
    ]
    return "\n\n".join(
        [
            f"One core, processor time, NVRTC {document['nvrtc']}, {document['arch']}, {document['date']}.",
            table(COMPILATION_TITLES, compiled),
            table([f"populations of {document['population']:,}", *SCORING_TITLES], scored),
        ]
    )


def _format_stages(milliseconds: dict[str, float]) -> str:
    """Formats the stages of a candidate's time."""
    shown = ", ".join(f"{title} {milliseconds[stage]:.1f}" for stage, title in STAGES.items())
    return (
        shown + f" (to PTX {milliseconds['ptx']:.1f}; all of a workload in one program {milliseconds['together']:.1f})"
    )
