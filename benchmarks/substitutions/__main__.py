"""`python -m benchmarks.substitutions` writes the rules of `autotune.lab.substitutions` anew within a minute."""

from __future__ import annotations

from autotune.lab.substitutions.rules import RULES_FILE
from benchmarks.substitutions.generate import DOMAINS
from benchmarks.substitutions.make import make, report, save

if __name__ == "__main__":
    made = make(DOMAINS)
    save(RULES_FILE, made.rules, report(made))
    print(report(made))
