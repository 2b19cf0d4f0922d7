"""`python -m benchmarks.substitutions` writes the rules of `autotune.lab.substitutions` anew within a minute."""

from __future__ import annotations

from autotune.lab.substitutions.rules import SAVED
from benchmarks.substitutions.generate import DOMAINS
from benchmarks.substitutions.make import make, report, save

if __name__ == "__main__":
    made = make(DOMAINS)
    save(SAVED, made.rules, report(made))
    print(report(made))
