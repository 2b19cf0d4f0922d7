"""Evaluation of cost models on measured programs: training samples, scores with intervals, and comparisons."""

from autotune.lab.evaluate.evaluation import Comparison, Evaluation, compare, evaluate
from autotune.lab.evaluate.samples import Samples, fit_model, samples

__all__ = ["Comparison", "Evaluation", "Samples", "compare", "evaluate", "fit_model", "samples"]
