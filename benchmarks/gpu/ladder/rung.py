"""One rung in this process: `python -m benchmarks.gpu.ladder.rung NAME --output FOLDER --modules FOLDER`."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu.ladder.lines import append


def main(arguments: Sequence[str] | None = None) -> int:
    """Appends the result, and returns the exit code: 0 right, 1 wrong or refused, 3 not on such a device."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.ladder.rung", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--modules", type=Path, required=True)
    options = parser.parse_args(arguments)
    from benchmarks.gpu.ladder.rungs import RUNGS, NotHere, WrongResult, module_for
    from targets.cuda.device import first_device

    (rung,) = (r for r in RUNGS if r.name == options.name)
    begun = time.perf_counter()
    try:
        device = first_device()
        module = module_for(rung, options.modules, device)
        loaded = time.perf_counter()
        facts = rung.climb(device, module)
        facts["seconds_to_try"] = time.perf_counter() - loaded
    except NotHere as error:
        append(options.output, rung.name, "skipped", begun, why=str(error))
        return 3
    except WrongResult as error:
        append(options.output, rung.name, "wrong", begun, why=str(error))
        return 1
    except Exception as error:
        append(
            options.output,
            rung.name,
            "failed",
            begun,
            why=f"{type(error).__name__}: {error}",
            trace=traceback.format_exc(limit=-3),
        )
        return 1
    append(options.output, rung.name, "right", begun, **facts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
