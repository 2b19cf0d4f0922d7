"""Cost models evaluated on measured programs: what they are trained on, metrics by task and by network, and tables."""

from costmodel.evaluate.comparison import Comparison, compare, fitted
from costmodel.evaluate.evaluation import Evaluation, TaskScores, evaluate
from costmodel.evaluate.samples import Samples, samples

__all__ = ["Comparison", "Evaluation", "Samples", "TaskScores", "compare", "evaluate", "fitted", "samples"]
