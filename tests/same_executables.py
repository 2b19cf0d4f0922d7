"""Proof that a refactoring changes no executable: the code of a revision and this tree compile the same, byte by byte.

`python -m tests.same_executables BASE [--only TEXT] [--models FILE ...] [--skip-zoo]`

Each case is compiled without trials and with no cache, once by the code of BASE and once by the files as they are here.
Of each executable that is loaded the manifest, the machine code and the weights are compared. Of the networks of open
sizes, of accelerators and of mixed precision it is the same. The exit status is 1 where a case differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.quick import extract_tree, resolve_base
from measure.host import describe_host
from search_space.files import replace_file
from tests.executable_cases import CASES, zoo_cases

ROOT = Path(__file__).parents[1]
STORE = Path("~/.cache/autotune-bench/same")
CHILD = ROOT / "tests" / "executable_cases.py"
"""Program that compiles a case; run with the packages of either tree."""
PATIENCE = 1800
"""Seconds that a case may take."""


def digests(tree: Path, case: Mapping[str, Any], threads: int) -> dict[str, str]:
    """Digests of what a tree compiles for a case, by the name of a file.

    Raises:
        RuntimeError: the tree cannot compile it.
    """
    variables = {**os.environ, "PYTHONPATH": str(tree), "AUTOTUNE_CACHE": "none", "PYTHONHASHSEED": "0"}
    words = [sys.executable, "-P", str(CHILD), json.dumps({**case, "threads": threads})]
    done = subprocess.run(words, cwd=tree, env=variables, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode:
        said = (done.stderr.strip() or "nothing").splitlines()[-1]
        raise RuntimeError(f"{tree} must compile {case['name']}, but says: {said}")
    result: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return result


def stored_digests(tree: Path, commit: str, case: Mapping[str, Any], threads: int) -> dict[str, str]:
    """Digests of a commit's executables, which an earlier comparison by the same program may have stored."""
    processor = describe_host()["cpu"]
    document = json.dumps([commit, case, threads, processor, CHILD.read_text()], sort_keys=True, default=str)
    file = STORE.expanduser() / commit / f"{hashlib.sha256(document.encode()).hexdigest()[:24]}.json"
    if not file.exists():
        replace_file(file, json.dumps(digests(tree, case, threads)).encode())
    result: dict[str, str] = json.loads(file.read_text())
    return result


def differences(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """Names of files that only one side has, or that differ."""
    return sorted(name for name in {*first, *second} if first.get(name) != second.get(name))


def compare(commit: str, cases: Sequence[Mapping[str, Any]], threads: int) -> list[str]:
    """Compares cases one after another, a printed line each, and returns the names of those that differ."""
    wrong, base = [], extract_tree(commit, STORE.expanduser())
    for case in cases:
        first, second = stored_digests(base, commit, case, threads), digests(ROOT, case, threads)
        apart = differences(first, second)
        print(f"{case['name']}: {len(first)} files, {'the same' if not apart else 'differ: ' + ', '.join(apart)}")
        sys.stdout.flush()
        if apart or not first:
            wrong.append(case["name"])
    return wrong


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.same_executables", description=__doc__.partition("\n")[0])
    parser.add_argument("base", help="revision whose executables are compared with")
    parser.add_argument("--only", default="", help="compare the cases whose name contains this")
    parser.add_argument("--models", nargs="*", default=[], type=Path, help="ONNX files to compare besides")
    parser.add_argument("--skip-zoo", action="store_true", help="leave out the models of the zoo, which take minutes")
    parser.add_argument("--threads", type=int, default=2, help="that kernels are chosen for")
    options = parser.parse_args()
    cases = [*CASES, *([] if options.skip_zoo else zoo_cases())]
    cases += [{"name": path.stem, "model": str(path.absolute())} for path in options.models]
    chosen = [case for case in cases if options.only in case["name"]]
    if not chosen:
        parser.error(f"`--only` must be in the name of a case, but got {options.only!r}")
    wrong = compare(resolve_base(options.base), chosen, options.threads)
    print(f"{len(chosen) - len(wrong)} of {len(chosen)} cases are the same" + "".join(f"\n  not {w}" for w in wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
