"""The process that cases run in, one after another: a case on each line of the input, a verdict on each of the output.

A kernel that writes where it must not ends this process, and no other.
"""

from __future__ import annotations

import json
import os
import sys
import traceback

from tests.fuzz.kinds import KINDS, Case, draw_case
from tests.fuzz.verdicts import Refusal

RIGHT, REFUSAL, WRONG = "right", "refused", "wrong"


def verdict(case: Case) -> dict[str, str]:
    """Checks a case; returns its `verdict`, and `why` as one line of text."""
    try:
        KINDS[case["kind"]].check(case["of"], case["seed"])
    except Refusal as refusal:
        return {"verdict": REFUSAL, "why": str(refusal)}
    except Exception as error:  # whatever a compiler raises is a finding
        last = traceback.extract_tb(error.__traceback__)[-1]
        return {"verdict": WRONG, "why": f"{type(error).__name__}: {error}", "where": f"{last.filename}:{last.lineno}"}
    return {"verdict": RIGHT, "why": ""}


def main() -> None:
    """Answers until the input ends; what libraries print goes to the error stream."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        case = json.loads(line)
        if "of" not in case:
            case = draw_case(case["kind"], case["seed"])
        print(json.dumps({**verdict(case), "case": case}), file=answers, flush=True)


if __name__ == "__main__":
    main()
