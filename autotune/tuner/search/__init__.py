"""Search strategies over populations of table indices: ask for candidates, tell their measurements."""

from autotune.tuner.search.base import Candidate, NoLegalSchedule, Scorer, SearchStrategy
from autotune.tuner.search.registry import STRATEGIES, get, strategy_name

__all__ = ["STRATEGIES", "Candidate", "NoLegalSchedule", "Scorer", "SearchStrategy", "get", "strategy_name"]
