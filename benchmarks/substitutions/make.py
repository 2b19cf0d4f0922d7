"""Program that makes the rules anew and writes them to a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autotune.lab.substitutions.rules import Rule
from benchmarks.substitutions.choose import RuleSelection, choose
from benchmarks.substitutions.generate import Domain, all_candidates

SEED = 0


def make(domains: Iterable[Domain], seed: int = SEED) -> RuleSelection:
    """Generates rules of some domains, verifies them, and chooses among them."""
    generation, verification = np.random.default_rng(seed).spawn(2)
    return choose(all_candidates(domains, generation), verification)


def report(selection: RuleSelection) -> dict[str, int]:
    """Returns the numbers that are saved with the rules."""
    return {
        "generated": selection.generated_count,
        "implied": selection.implied_count,
        "refuted": selection.refuted_count,
        "verified": selection.generated_count - selection.implied_count - selection.refuted_count,
    }


def save(path: Path, rules: Iterable[Rule], report: Mapping[str, Any]) -> None:
    """Writes rules as plain data, one a line, after the numbers of how they were found."""
    data = {**report, "rules": [str(rule) for rule in rules]}
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
