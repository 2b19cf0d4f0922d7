"""Comparison of a decoder with ONNX Runtime and PyTorch: prompts, and steps after as many tokens.

`python -m benchmarks.language [--rows "llama step 65",...] [--layers 12] [--repeat 20]` compares GPT-2 small and a
model of Llama's architecture (random weights) with the peers. All take turns in processes of their own. It prints the
table, and writes `benchmarks/results/language_THREADS.json` once all rows are there.

With `--gguf Q8_0,Q4_K_M` llama.cpp writes a file of each of these types, and runs it beside ours; a table of each is
printed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from autotune.language import Llama
from autotune.language import llama as make_llama
from benchmarks.collected import add_options, collect
from benchmarks.figures import beside, figures, halves_difference, milliseconds, with_processors
from benchmarks.interleave import FEWEST_ROUNDS, SelfTimer, measure_turns
from benchmarks.llama_cpp_peer import find_version, quantise_file, write
from benchmarks.markdown import table
from benchmarks.peers.base import PeerProcess as Other

PEERS = ("onnxruntime", "torch")
FEW_BITS = {8: ("weights8", "bytes8"), 4: ("weights4", "bytes4")}
"""Our runtimes with weights in groups of 32, with factors in floats and in bytes, by bits."""
FEW_BITS_PEERS = {bits: (f"onnxruntime{bits}", f"llama_cpp{bits}") for bits in FEW_BITS}
"""Peers with such weights, with factors in bytes. llama.cpp has models of Llama's architecture, and may be missing."""
READS = {"read": 1.0, "read8": 9 / 32, "read4": 4.5 / 32}
"""Plain reads of the bytes of our step in floats, 8 and 4 bits, as shares of the floats' bytes.

32 weights of 8 bits have a scale of one float, of 4 bits half a float.
"""
CASES = (("prefill", 128), ("prefill", 512), ("step", 65), ("step", 513))
"""Tokens of a prompt, and of a sequence with the token of the step."""
LONGEST = 1024
SIZES: dict[str, dict[str, int]] = {
    "gpt2": {"vocabulary": 50257, "hidden": 768, "layers": 12, "heads": 12},
    "llama": {"vocabulary": 32000, "hidden": 1024, "layers": 12, "heads": 16, "kv_heads": 4, "inner": 2816},
}
"""Sizes of each model: 124 million weights, and 167 million, embeddings shared with the logits."""


class PeerProcess:
    """One of `benchmarks.language_peers`.

    Args:
        name: name of the peer.
        threads: threads that it runs on.
        sizes: `model` and its sizes, and `longest`, as plain data.

    Attributes:
        seconds: seconds of its construction.
        case: case to time.
    """

    def __init__(self, name: str, threads: int, sizes: Mapping[str, int | str]) -> None:
        command = [sys.executable, "-m", "benchmarks.language_peers", name, str(threads), json.dumps(dict(sizes))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.seconds = float(self._answer()["seconds"])
        self.case: tuple[str, int] = CASES[0]

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def logits(self) -> np.ndarray[Any, Any]:
        """Returns logits of the case, of its last run."""
        return np.array(self._ask(1, True)["logits"])

    def warm(self, seconds: float) -> None:
        """Runs for so long."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self.time(1)

    def time(self, samples: int) -> list[float]:
        """Times each of `samples` runs in seconds."""
        found: list[float] = self._ask(samples, False)["seconds"]
        return found

    def _ask(self, samples: int, logits: bool) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"case": self.case, "samples": samples, "logits": logits}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a peer must answer, but ended with code {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found


class Model:
    """A model in all runtimes, each in a process of its own, for as many cases as are asked of it.

    Args:
        model: one of `SIZES`.
        options: options of the command line.
    """

    def __init__(self, model: str, options: argparse.Namespace) -> None:
        self._stack, self._repeat = ExitStack(), options.repeat
        self.sizes = model_sizes(model, options)
        positions = {"positions": LONGEST} if model == "gpt2" else {}
        settings = {"model": model, **self.sizes, **positions, "longest": LONGEST}
        few = [name for bits in FEW_BITS for name in (*FEW_BITS[bits], *FEW_BITS_PEERS[bits])]
        others = [name for name in few if not name.startswith("llama_cpp") or (model == "llama" and find_version())]
        names = ("ours", *PEERS, *others)
        self._running = {n: self._stack.enter_context(PeerProcess(n, options.threads, settings)) for n in names}
        self._reads = {name: self._stack.enter_context(Other("benchmarks.peers.nbits_peer")) for name in READS}
        self._facts = {"model": model, "sizes": self.sizes, "read_bytes": weights_bytes(**self.sizes)}
        for name, process in self._reads.items():
            nbytes = round(self._facts["read_bytes"] * READS[name])
            process.ask({"op": "prepare", "runtime": "read", "threads": options.threads, "nbytes": nbytes})

    def row(self, case: tuple[str, int]) -> dict[str, Any]:
        """Measures the row of a case."""
        facts = {**self._facts, "seconds_to_compile": self._running["ours"].seconds}
        return {**facts, **compare_runtimes(case, self._running, self._reads, self._repeat)}

    def close(self) -> None:
        """Ends the processes."""
        self._stack.close()


def model_sizes(model: str, options: argparse.Namespace) -> dict[str, int]:
    """Returns the sizes of a model, with the ones given as options."""
    return {n: size if getattr(options, n) is None else getattr(options, n) for n, size in SIZES[model].items()}


def weights_bytes(
    vocabulary: int, hidden: int, layers: int, heads: int, kv_heads: int | None = None, inner: int | None = None
) -> int:
    """Counts bytes of the products of every step, in float32; a step reads only one row of embeddings.

    `kv_heads` and `inner` are given for a model of Llama's architecture, and None for GPT-2's.
    """
    if kv_heads is None or inner is None:
        return 4 * hidden * (12 * hidden * layers + vocabulary)
    narrow = hidden * kv_heads // heads
    return 4 * hidden * ((2 * hidden + 2 * narrow + 3 * inner) * layers + vocabulary)


def compare_runtimes(
    case: tuple[str, int],
    running: Mapping[str, PeerProcess],
    reads: Mapping[str, SelfTimer],
    repeat: int,
) -> dict[str, Any]:
    """Times all runtimes in turns, for a step plain reads too, and computes how far logits differ."""
    for process in running.values():
        process.case = case
    logits = {who: process.logits() for who, process in running.items()}
    largest = np.abs(logits["ours"]).max()
    errors = {who: float(np.abs(found - logits["ours"]).max() / largest) for who, found in logits.items()}
    turns: dict[str, SelfTimer] = {**running, **(reads if case[0] == "step" else {})}
    return {
        "case": list(case),
        "errors": errors,
        **figures(measure_turns(turns, repeat, pause=0.06, warm_seconds=0.04)),
    }


def language(document: Mapping[str, Any]) -> str:
    """Formats the tables: floats, and weights of each number of bits; a line for each case."""
    rows = sorted(document["rows"].values(), key=lambda row: (row["model"], *row["case"]))
    several = len({row["model"] for row in rows}) > 1
    facts = "; ".join(
        dict.fromkeys(
            f"{row['model']} with {row['sizes']['layers']} layers of {row['sizes']['hidden']}" for row in rows
        )
    )
    worst = max(error for row in rows for who, error in row["errors"].items() if who in PEERS)
    said = f"Compiling without a cache: {max(row['seconds_to_compile'] for row in rows):.1f} s. "
    said += f"Logits in floats differ by {worst:.0e} of the largest at most."
    head = f"{facts}. {said}"
    return "\n\n".join((head, *(_part(rows, several, kind) for kind in kinds())))


def kinds() -> dict[str, tuple[Sequence[str], Sequence[str], str]]:
    """Returns kind of weights → names of ours, of the peers that have them, and of a plain read of them."""
    few = {f"{bits} bits": (ours, FEW_BITS_PEERS[bits], f"read{bits}") for bits, ours in FEW_BITS.items()}
    return {"floats": (("ours",), PEERS, "read"), **few}


def find_fastest(row: Mapping[str, Any], kind: str) -> tuple[str | None, str | None]:
    """Returns the fastest of ours and of the peers with weights of a kind; None where none was timed."""
    ours, peers = (
        min((who for who in each if who in row["seconds"]), key=row["seconds"].__getitem__, default=None)
        for each in kinds()[kind][:2]
    )
    return ours, peers


def compute_ratios(rows: Iterable[Mapping[str, Any]], kind: str) -> list[tuple[float, float]]:
    """Returns seconds of the fastest peer over ours, with weights of a kind, and the noise of the two; none untimed."""
    found = [(row, *find_fastest(row, kind)) for row in rows]
    return [
        (row["seconds"][peer] / row["seconds"][ours], halves_difference(row, ours, peer))
        for row, ours, peer in found
        if ours is not None and peer is not None
    ]


TITLES = {"ours": "ours", "onnxruntime": "ONNX Runtime", "torch": "PyTorch"}
TITLES |= {f"weights{bits}": "ours" for bits in FEW_BITS} | {f"bytes{bits}": "ours, data in bytes" for bits in FEW_BITS}
TITLES |= {f"onnxruntime{bits}": "ONNX Runtime, data in bytes" for bits in FEW_BITS}
TITLES |= {f"llama_cpp{bits}": "llama.cpp, data in bytes" for bits in FEW_BITS}


def _part(rows: Sequence[Mapping[str, Any]], several: bool, kind: str) -> str:
    """Returns the table of one of `kinds`; `several`: rows are of several models."""
    ours, peers, read = kinds()[kind]
    lines: list[list[object]] = []
    for row in rows:
        took, (what, count) = row["seconds"], row["case"]
        of = f"prompt of {count}" if what == "prefill" else f"step behind {count - 1}"
        of = f"{row['model']}: {of}" if several else of
        tokens = count if what == "prefill" else 1
        fastest, best = find_fastest(row, kind)
        cells: list[str] = []
        for who in (*ours, *peers):
            error = f" ({row['errors'][who]:.1%})" if who in row["errors"] and ours != ("ours",) else ""
            cells.append(f"{took[who] * 1e3:.2f}{error}" if who in took else "")
        cells.append(f"{tokens / took[fastest]:.1f}" if fastest else "")
        cells.append(beside(row, fastest, best) if best and fastest else "")
        cells.append(f"{took[read] / took[fastest]:.0%}" if read in took and fastest else "")
        lines.append([of, *cells])
    head = [kind, *(f"{TITLES[who]} ms" for who in (*ours, *peers))]
    head += ["our tokens/s", "ratio to best peer", "of a plain read's rate"]
    return table(*with_processors(head, lines, rows))


FILE_PEERS = ("ours", "bytes", "llama_cpp")
"""Runtimes of a GGUF file: ours with data in floats and in bytes, and llama.cpp."""


def compare_files(options: argparse.Namespace) -> Iterator[str]:
    """Times GGUF files in ours and in llama.cpp, in turns; yields a table for each type, with a line for each case."""
    sizes = model_sizes("llama", options)
    with tempfile.TemporaryDirectory(prefix="autotune-gguf-") as folder:
        floats, path = Path(folder) / "floats.gguf", Path(folder) / "model.gguf"
        write(make_llama(Llama(tied=True, **sizes), rng=np.random.default_rng(0)), LONGEST, 32, floats)
        for kind in options.gguf.split(","):
            quantise_file(floats, kind, path)
            head = [f"{kind}, {path.stat().st_size / 1e6:.0f} MB", "ours ms", "ours, data in bytes ms", "llama.cpp ms"]
            settings = {"file": str(path), "longest": LONGEST}
            lines: list[list[object]] = []
            with ExitStack() as stack:
                running = {n: stack.enter_context(PeerProcess(n, options.threads, settings)) for n in FILE_PEERS}
                for what, count in CASES:
                    row = compare_runtimes((what, count), running, {}, options.repeat)
                    ours = min(FILE_PEERS[:2], key=row["seconds"].__getitem__)
                    cells = [f"{row['seconds'][n] * 1e3:.2f} ({row['errors'][n]:.1%})" for n in FILE_PEERS]
                    lines.append([f"{what} {count}", *cells, beside(row, ours, "llama_cpp")])
            yield table([*head, "ratio"], lines)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.language", description=__doc__.partition("\n")[0])
    add_options(parser)
    for name in ("vocabulary", "hidden", "layers", "heads", "kv_heads", "inner"):
        parser.add_argument(f"--{name}", type=int, help="of the model, where it has that")
    parser.add_argument("--repeat", type=int, default=FEWEST_ROUNDS, help="rounds of turns")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--gguf", help="types of GGUF files with commas between them, such as Q8_0,Q4_K_M; see below")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    options = parse(arguments)
    if options.gguf:
        for shown in compare_files(options):
            print(shown, flush=True)
        return 0
    cases = {f"{model} {what} {count}": (model, (what, count)) for model in SIZES for what, count in CASES}
    settings = {"threads": options.threads, "repeat": options.repeat, "llama.cpp": find_version() or "not installed"}
    if changed := {model: of for model in SIZES if (of := model_sizes(model, options)) != SIZES[model]}:
        settings["sizes"] = changed
    running: dict[str, Model] = {}

    def measure(name: str) -> dict[str, Any]:
        model, case = cases[name]
        if model not in running:
            for other in running.values():
                other.close()
            running.clear()
            running[model] = Model(model, options)
        return running[model].row(case)

    try:
        return collect(options, f"language_{options.threads}", settings, list(cases), measure, milliseconds, language)
    finally:
        for model in running.values():
            model.close()


if __name__ == "__main__":
    sys.exit(main())
