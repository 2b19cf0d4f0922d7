"""The table of README and docs/benchmarks.md: one line for each subject, at most eight, from the result files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import headline, language, results, tvm_table
from benchmarks.collected import check
from benchmarks.figures import describe_machine, name_generation, ratio_text
from benchmarks.interleave import geometric_mean
from benchmarks.markdown import table

Document = Mapping[str, Any]

HEADER = ["what", "compared with", "on", "trials", "speed-up", "lowest to highest", "cases", "other processors"]


@dataclass(frozen=True)
class Cases:
    """Cases that a line of the table compares.

    Attributes:
        ratios: seconds of the fastest peer over ours and the noise of the two, one for each case.
        noun: noun for cases.
        held_out: ratios of the cases that nothing was trained on.
        overall: the speed-up, if it is not the geometric mean of the ratios.
    """

    ratios: Sequence[tuple[float, float]]
    noun: str
    held_out: Sequence[float] = ()
    overall: float | None = None


@dataclass(frozen=True)
class Line:
    """A line of the table.

    Attributes:
        title: subject of the comparison.
        table: name of the result file.
        page: page under `docs` that has all cases.
        peers: peers of the comparison.
        trials: trials of each search.
        cases: name and document of the result file → its cases.
    """

    title: str
    table: str
    page: str
    peers: str
    trials: str
    cases: Callable[[str, Document], Cases]


def _make_claim_cases(what: str, noun: str) -> Callable[[str, Document], Cases]:
    """Returns the cases of a claim of `benchmarks.headline`."""

    def cases(name: str, document: Document) -> Cases:
        claims = [claim for claim in headline.CLAIMS[name](document) if claim.what == what]
        rows = [(row, *each.ratio(row)) for each in claims for row in document["rows"].values() if each.of(row)]
        timed = [(row, ratio, noise) for row, ratio, noise in rows if ratio is not None]
        held_out = [ratio for row, ratio, _ in timed if row.get("held_out")]
        return Cases([(ratio, noise) for _, ratio, noise in timed], noun, held_out)

    return cases


def _language(name: str, document: Document) -> Cases:
    """Returns every prompt and step with every kind of weights, beside peers with the same kind of weights."""
    rows = document["rows"].values()
    return Cases(
        [each for kind in language.kinds() for each in language.compute_ratios(rows, kind)], "prompts and steps"
    )


def _search_time(name: str, document: Document) -> Cases:
    """Returns seconds of TVM's searches over ours; the speed-up is that of all searches together."""
    seconds = [tvm_table.search_seconds(row) for row in document["rows"].values() if "tuning" in row]
    ours, theirs = (sum(each) for each in zip(*seconds, strict=True)) if seconds else (1.0, 1.0)
    return Cases([(other / own, 0.0) for own, other in seconds], "operators", overall=theirs / ours)


def _gpu(name: str, document: Document) -> Cases:
    return Cases([(row["ratio_warm"], 0.0) for row in document["rows"].values() if "ratio_warm" in row], "kernels")


def _vta(name: str, document: Document) -> Cases:
    return Cases([(gain, 0.0) for gain in vta_gains(document)], "layers")


def vta_gains(document: Document) -> list[float]:
    """Returns the cycles of published schedules over those of tuned ones, by layer."""
    return [row["cycles"]["published"] / row["cycles"]["tuned"] for row in document["rows"].values()]


FLOATS = "ONNX Runtime, OpenVINO, PyTorch, Inductor"
NETWORKS, INT8, TVM = (f"benchmarks/{page}.md" for page in ("networks", "int8", "tvm"))
LINES = (
    Line(
        "Networks, float32",
        "networks_0_2",
        NETWORKS,
        FLOATS,
        "none",
        _make_claim_cases("networks, float32", "networks"),
    ),
    Line(
        "Networks, bfloat16",
        "networks_0_2",
        NETWORKS,
        f"{FLOATS}, in float32 and bfloat16",
        "none",
        _make_claim_cases("networks, bfloat16", "networks"),
    ),
    Line(
        "Networks, int8",
        "quantized_networks",
        INT8,
        "ONNX Runtime, OpenVINO",
        "none",
        _make_claim_cases("networks, int8", "networks"),
    ),
    Line(
        "`torch.compile`",
        "pytorch",
        "benchmarks/pytorch.md",
        "Inductor, eager PyTorch",
        "none",
        _make_claim_cases("models by `torch.compile`", "models"),
    ),
    Line(
        "Language models",
        "language_2",
        "language_models.md#measured",
        "ONNX Runtime, PyTorch, llama.cpp",
        "none",
        _language,
    ),
    Line("Search time", "tvm", TVM, "TVM MetaSchedule", "256", _search_time),
    Line("GPU kernels", "gpu", "benchmarks/gpus.md", "PyTorch (cuBLAS, cuDNN)", "48", _gpu),
    Line("Simulated VTA, cycles", "vta", "benchmarks/vta.md", "schedules published by TVM", "128", _vta),
)


@dataclass(frozen=True)
class Results:
    """Results of a line on one machine.

    Attributes:
        document: result file.
        cases: its cases, at least one.
    """

    document: Document
    cases: Cases


def lines_from(documents: Mapping[str, Document]) -> list[tuple[Line, Results, list[Results]]]:
    """Returns the lines that have results: the line, those that it shows, and those of other machines.

    A line whose own file has no case, such as bfloat16 on a processor without it, shows those of a second processor.

    Args:
        documents: name → result file.

    Raises:
        MixedTable: a file has rows that must not be in one table.
    """
    every = [(line, list(_list_results(line, documents))) for line in LINES]
    return [(line, of_machines[0], of_machines[1:]) for line, of_machines in every if of_machines]


def _list_results(line: Line, documents: Mapping[str, Document]) -> Iterator[Results]:
    for name in (line.table, *sorted(name for name in documents if name.endswith(f"/{line.table}"))):
        if name in documents:
            if "state" in documents[name]:
                check(name, documents[name])
            cases = line.cases(line.table, documents[name])
            if cases.ratios:
                yield Results(documents[name], cases)


def speed_up(cases: Cases) -> float:
    """Returns the speed-up over all cases."""
    return geometric_mean([ratio for ratio, _ in cases.ratios]) if cases.overall is None else cases.overall


def _format_speed_up(cases: Cases) -> str:
    """Formats the speed-up, with one decimal if it is one of seconds in total."""
    return f"{speed_up(cases):.{2 if cases.overall is None else 1}f}x"


def readme(folder: Path = results.FOLDER, pages: str = "docs/") -> str:
    """Returns the table, and a line with commits and days.

    Args:
        folder: folder of the result files.
        pages: path of the pages from the file that shows the table.
    """
    lines: list[list[str]] = []
    commits: dict[str, None] = {}
    for line, shown, others in lines_from(results.load_all([line.table for line in LINES], folder)):
        document, cases = shown.document, shown.cases
        if cases.overall is None:
            ends = [ratio_text(*end(cases.ratios)) for end in (min, max)]
        else:
            ends = [f"{end(cases.ratios)[0]:.1f}x" for end in (min, max)]
        elsewhere = ", ".join(f"{_name_generations(each.document)} {_format_speed_up(each.cases)}" for each in others)
        held_out = f", {len(cases.held_out)} held out: {geometric_mean(cases.held_out):.2f}x" if cases.held_out else ""
        cells = [f"[{line.title}]({pages}{line.page})", line.peers, _describe_machine(document), line.trials]
        lines.append(
            [
                *cells,
                f"**{_format_speed_up(cases)}**",
                " to ".join(ends),
                f"{len(cases.ratios)} {cases.noun}{held_out}",
                elsewhere,
            ]
        )
        commits |= dict.fromkeys(_find_commit(each.document) for each in (shown, *others))
    said = f"Commits {', '.join(commits)}. Each link leads to all cases, the command, and the measurement noise."
    return f"{table(HEADER, lines, left=4)}\n\n{said}"


def _describe_machine(document: Document) -> str:
    """Returns the device, or the processors and threads; figures without threads are counted by a simulator."""
    if "device" in document:
        return str(document["device"])
    threads = document["state"]["settings"].get("threads")
    if threads is None:
        return "simulator"
    return describe_machine(" and ".join(_list_processors(document)), threads)


def _name_generations(document: Document) -> str:
    return " and ".join(map(name_generation, _list_processors(document)))


def _list_processors(document: Document) -> list[str]:
    return list(dict.fromkeys(row["made"]["cpu"] for row in document["rows"].values()))


def _find_commit(document: Document) -> str:
    if "state" in document:
        return str(document.get("at") or document["state"]["commit"])
    return ", ".join(dict.fromkeys(row["made"]["commit"] for row in document["rows"].values()))
