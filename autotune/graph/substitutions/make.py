"""Makes the rules anew: `python -m autotune.graph.substitutions.make` writes rules.json, which is then to be read."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from autotune.graph.substitutions.choose import Chosen, choose
from autotune.graph.substitutions.generate import DOMAINS, Domain, all_candidates
from autotune.graph.substitutions.rules import SAVED, save

SEED = 0


def make(domains: Iterable[Domain], seed: int = SEED) -> Chosen:
    """Rules of some domains: generated, verified, and chosen from."""
    generation, verification = np.random.default_rng(seed).spawn(2)
    return choose(all_candidates(domains, generation), verification)


def report(chosen: Chosen) -> dict[str, int]:
    """The numbers that are saved with the rules."""
    return {
        "generated": chosen.generated,
        "implied": chosen.implied,
        "refuted": chosen.refuted,
        "verified": chosen.generated - chosen.implied - chosen.refuted,
    }


if __name__ == "__main__":
    made = make(DOMAINS)
    save(SAVED, made.rules, report(made))
    print(report(made))
