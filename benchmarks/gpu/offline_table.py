"""The table of `benchmarks.gpu.offline`."""

from __future__ import annotations

from typing import Any

STAGES = {"lowered": "lowering", "kernels": "kernels", "text": "text", "nvrtc": "NVRTC"}


def offline(document: dict[str, Any]) -> str:
    """Kernels compiled a second and where a candidate's time goes; candidates scored and checked a second."""
    rows = document["rows"].values()
    lines = [
        f"One core, processor time, NVRTC {document['nvrtc']}, {document['arch']}, {document['date']}.",
        "",
        "| compiled to cubins | candidates | kernels | a second | target | candidates a second | ms a candidate |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in (r for r in rows if r["work"] == "compiled"):
        spent = row["milliseconds"]
        shown = ", ".join(f"{title} {spent[stage]:.1f}" for stage, title in STAGES.items())
        shown += f" (to PTX {spent['ptx']:.1f}; all of a workload in one program {spent['together']:.1f})"
        lines.append(
            f"| {row['what']} | {row['candidates']} | {row['kernels']} | {row['per_second']:.1f} | "
            f"{row.get('target', '')} | {row['candidates_per_second']:.1f} | {shown} |"
        )
    lines += [
        "",
        f"| populations of {document['population']:,} | sketches | candidates | scored a second | target | of target | "
        "checked a second | trees | rows |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {row['what']} | {row['sketches']} | {row['candidates']:,} | {row['per_second']:,.0f} | {row['target']:,} | "
        f"{row['per_second'] / row['target']:.1f}x | {row['checked_per_second']:,.0f} | {row['trees']} | "
        f"{row['feature_rows']:.1f} |"
        for row in rows
        if row["work"] == "scored"
    ]
    return "\n".join(lines)
