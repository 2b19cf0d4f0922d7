"""Check for slower networks: this tree and a release in turns, in ten minutes.

`python -m benchmarks.quick [--base REVISION] [--networks NAME,...] [--turns 12]` compiles networks without trials by
the code of REVISION and by the files as they are here, and times both in turns. REVISION is the newest version by
default, and in a repository without tags the commit of the networks' table. Executables of a revision are kept in
`~/.cache/autotune-bench/quick`, and run by its own code. The exit status is 1 if a network is slower than before by
more than `--slower` and the difference of its turns' two halves.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from autotune.compiler.build import make_feeds
from autotune.compiler.cache.locations import NONE, VARIABLE
from autotune.compiler.checking.process import NetworkProcess, RuntimeFailure
from autotune.compiler.prepare import load_network
from autotune.graph.errors import UnsupportedModelError
from autotune.graph.frontends.onnx.model import load_model
from benchmarks import results
from benchmarks.figures import figures_in_turns, halves_difference, ratio_text
from benchmarks.interleave import geometric_mean
from benchmarks.markdown import table
from benchmarks.provenance import ROOT
from benchmarks.subjects import Subject
from measure.host import describe_host
from measure.hostlock import alone

Row = Mapping[str, Any]

LABELS = ("before", "now")
STORE = Path("~/.cache/autotune-bench/quick")
NETWORKS = ("resnet50", "mobilenet_v2", "squeezenet1_0", "densenet121", "vit_small_patch16_224", "distilbert_base")
NETWORKS_TABLE = "networks_0_2"
"""Result file whose commit stands in for a release where none is tagged."""
_COMPILE = """
import sys
import autotune

file, folder, threads = sys.argv[1:]
autotune.compile(file, threads=int(threads)).save(folder)
"""
"""Program that compiles a model without trials; run by the code of either tree, whose own `autotune` it imports."""


class QuickError(RuntimeError):
    """A revision that is not there, or code that cannot compile a network."""


def git(*words: str, folder: Path = ROOT) -> str:
    """Runs git, and returns its output.

    Raises:
        QuickError: it refuses.
    """
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise QuickError(f"git {' '.join(words)} must work, but: {done.stderr.strip()}")
    return done.stdout.strip()


def resolve_base(revision: str | None, folder: Path = ROOT) -> str:
    """Returns twelve digits of the commit to compare with.

    Args:
        revision: a revision; None: the newest version, or without tags the commit of the networks' table.
        folder: repository.

    Raises:
        QuickError: there is no such commit.
    """
    if revision is None:
        tags = git("tag", "--sort=-version:refname", folder=folder).splitlines()
        if tags:
            revision = tags[0]
        elif (measured := results.load(NETWORKS_TABLE)) is not None:
            revision = measured["state"]["commit"]
        else:
            raise QuickError("a release must be tagged, or a revision named by `--base`, but there is no tag")
    return git("rev-parse", "--short=12", f"{revision}^{{commit}}", folder=folder)


def extract_tree(commit: str, store: Path, repository: Path = ROOT) -> Path:
    """Extracts the files of a commit into a folder of the store."""
    folder = store / commit / "tree"
    if not folder.exists():
        part = store / commit / "part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        archive = part / "tree.tar"
        git("archive", "-o", str(archive), commit, folder=repository)
        shutil.unpack_archive(archive, part, filter="data")
        archive.unlink()
        part.rename(folder)
    return folder


def compile_network(tree: Path, file: Path, folder: Path, threads: int) -> Path:
    """Compiles a network by the code of a tree, unless it is there; returns the executable's folder.

    Raises:
        QuickError: the tree's code cannot compile the network.
    """
    if not folder.exists():
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        words = [sys.executable, "-P", "-c", _COMPILE, str(file), str(part), str(threads)]
        variables = {**os.environ, "PYTHONPATH": str(tree), VARIABLE: NONE}  # choices of the other tree are not taken
        done = subprocess.run(words, cwd=tree, env=variables, capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr.strip() or "nothing").splitlines()[-1]
            raise QuickError(f"{tree} must compile {file.stem}, but says: {said}")
        part.rename(folder)
    return folder


def compare(file: Path, trees: Mapping[str, Path], folders: Mapping[str, Path], threads: int, turns: int) -> Row:
    """Times a network by each tree in turns, and how steady it was.

    Args:
        file: file of the network.
        trees: label → the code that compiles it and runs it.
        folders: label → where its executable is kept.
        threads: threads that it runs on.
        turns: turns of each tree.

    Raises:
        QuickError: it cannot be compiled.
        RuntimeFailure: it cannot be run.
    """
    feeds = make_feeds(load_network(load_model(str(file)), file.stem), 0)
    with ExitStack() as stack:
        processes = []
        for label, tree in trees.items():
            folder = compile_network(tree, file, folders[label], threads)
            kind = type("TreeProcess", (NetworkProcess,), {"tree": tree})
            process = stack.enter_context(kind("autotune", threads, folder=str(folder)))
            process.infer(feeds)
            process.runtime = label  # both are ours
            processes.append(process)
        with alone():
            return figures_in_turns(processes, turns)


def make_lines(rows: Mapping[str, Row], slower: float) -> tuple[list[list[object]], list[str]]:
    """Formats the cells of the table, and lists the names of slower networks.

    Args:
        rows: rows by network.
        slower: share by which one must take longer to count.
    """
    lines: list[list[object]] = []
    slow = []
    for name, row in rows.items():
        before, now = (row["seconds"][label] for label in LABELS)
        noise = halves_difference(row, *LABELS)
        worse = now / before > 1 + max(slower, noise)
        slow += [name] if worse else []
        cells = [f"{before * 1e3:.3f}", f"{now * 1e3:.3f}", ratio_text(now / before, noise)]
        lines.append([name, *cells, "slower" if worse else ""])
    return lines, slow


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quick", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--base", help="revision to compare with; default: the newest version, else the commit of the networks' table"
    )
    parser.add_argument("--networks", default=",".join(NETWORKS), help="of the survey's list, or ONNX files")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slower", type=float, default=0.03, help="share from which a network counts as slower")
    parser.add_argument("--store", type=Path, default=STORE, help="folder of what revisions have compiled")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares, prints the table, and lists slower networks."""
    options = parse(arguments)
    store = options.store.expanduser()
    rows: dict[str, Row] = {}
    try:
        commit = resolve_base(options.base)
        trees = dict(zip(LABELS, (extract_tree(commit, store), ROOT), strict=True))
        machine = re.sub(r"\W+", "_", describe_host()["cpu"])
        with tempfile.TemporaryDirectory(prefix="autotune-quick-") as work:
            for name in options.networks.split(","):
                file = Path(name) if name.endswith(".onnx") else export_model(store / "exports", name)
                kept = f"{file.stem}_{options.threads}_{machine}"
                folders = dict(zip(LABELS, (store / commit / kept, Path(work) / kept), strict=True))
                rows[file.stem] = compare(file, trees, folders, options.threads, options.turns)
                sys.stderr.write(f"{file.stem}: {time_ratio(rows[file.stem]):.3f} of {commit}\n")
    except (QuickError, UnsupportedModelError, RuntimeFailure, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    lines, slower = make_lines(rows, options.slower)
    mean = geometric_mean([time_ratio(row) for row in rows.values()])
    sys.stdout.write(table(["network", f"{commit} ms", "now ms", "ratio", ""], lines) + "\n")
    sys.stdout.write(f"\ngeometric mean {mean:.3f}; slower: {', '.join(slower) or 'none'}\n")
    return int(bool(slower))


def time_ratio(row: Row) -> float:
    """Computes seconds now over seconds before."""
    before, now = (row["seconds"][label] for label in LABELS)
    return float(now / before)


def export_model(folder: Path, name: str) -> Path:
    """Returns the ONNX file of a model of the survey, exported if it is missing.

    Raises:
        QuickError: the model cannot be exported.
    """
    file = folder / f"{name}.onnx"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            Subject(name).file(folder, 0)
        except (RuntimeError, ValueError) as error:
            raise QuickError(f"{name} must be exported, but: {error}") from None
    return file


if __name__ == "__main__":
    sys.exit(main())
