"""`python -m tests.fuzz`: random programs, graphs, PyTorch's samples and streams against oracles that are not ours.

Programs are compiled by LLVM, and some also in C, by each compiler of this host at each level.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import time
from pathlib import Path

import onnx

from targets.threads import host_cores
from tests.fuzz.graphs import GENERATORS
from tests.fuzz.runner import Outcome, Worker, fuzz
from tests.fuzz.worker import RIGHT


def main() -> int:
    """Exit code: 0 where nothing was found and enough was run."""
    options = _options()
    if options.case is not None:
        return _again(options.case)
    wanted = {
        "program": options.programs,
        "broadcast": options.broadcasts,
        "c": options.c_programs,
        **dict.fromkeys(GENERATORS, options.graphs),
        "special": options.special,
        "torch": options.torch,
        "stream": options.streams,
    }
    seed = time.time_ns() % 10**9 if options.seed is None else options.seed
    print(f"seed {seed}, {options.jobs} processes, at most {options.minutes:g} minutes", flush=True)
    outcome = fuzz(wanted, seed, options.minutes, options.jobs)
    _report(outcome, wanted)
    for number, finding in enumerate(outcome.findings):
        _write(finding, options.output / f"{finding['drawn']['kind']}_{finding['drawn']['seed']}.json", number)
    few = [kind for kind, count in wanted.items() if outcome.right[kind] < count]
    if few and not outcome.findings:
        print(f"{', '.join(few)}: too few were run in {options.minutes:g} minutes")
    return int(bool(outcome.findings or few))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000, help="tensor programs, each under several schedules")
    parser.add_argument("--broadcasts", type=int, default=2000, help="element-wise programs with broadcast operands")
    parser.add_argument("--c-programs", type=int, default=100, help="in C, by each compiler at -O0 to -O3")
    parser.add_argument("--graphs", type=int, default=600, help="ONNX graphs of each generator")
    parser.add_argument("--special", type=int, default=600, help="ONNX graphs on NaN, infinities and bad scales")
    parser.add_argument("--torch", type=int, default=300, help="samples of PyTorch's operators, by `torch.compile`")
    parser.add_argument("--streams", type=int, default=500, help="VTA streams")
    parser.add_argument("--minutes", type=float, default=10.0, help="most that it takes")
    parser.add_argument("--seed", type=int, help="of the first case; another one every time by default")
    parser.add_argument("--jobs", type=int, default=host_cores(), help="processes")
    parser.add_argument("--output", type=Path, default=Path("build/fuzz"), help="folder of what was found")
    parser.add_argument("--case", type=Path, help="check what was found, and nothing else")
    return parser.parse_args()


def _report(outcome: Outcome, counts: dict[str, int]) -> None:
    for kind in counts:
        refused = outcome.refusals.get(kind, {})
        print(f"{kind}: {outcome.right[kind]} right, {outcome.wrong[kind]} wrong, {sum(refused.values())} refused")
        for why, count in sorted(refused.items(), key=lambda item: -item[1])[:8]:
            print(f"    {count} {why}")


def _write(finding: dict[str, object], path: Path, number: int) -> None:
    """A finding as a file and how to see it again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(finding["case"]) + "\n")
    print(f"\n{number + 1}. {finding['why']}\n   {finding.get('where', '')}")
    of = finding["case"]["of"]  # type: ignore[index]
    if isinstance(of, str):
        model = path.with_suffix(".onnx")
        model.write_bytes(base64.b64decode(of))
        print(onnx.printer.to_text(onnx.load(model).graph)[:3000])
    elif of is not None and "operator" not in of:
        print("\n".join(json.dumps(part) for parts in of.values() for part in parts)[:3000])
    print(f"   again: python -m tests.fuzz --case {path}")


def _again(path: Path) -> int:
    worker = Worker()
    try:
        answer = worker.ask(json.loads(path.read_text()))
    finally:
        worker.close()
    print(answer["verdict"], answer["why"], answer.get("where", ""))
    return int(answer["verdict"] != RIGHT)


if __name__ == "__main__":
    sys.exit(main())
