"""Features of a population: one traversal of a sketch's program, evaluated on columns."""

from costmodel.features.extractor import FeatureExtractor, Shared, get_extractor
from costmodel.features.groups import NAMES, SECONDS

__all__ = ["NAMES", "SECONDS", "FeatureExtractor", "Shared", "get_extractor"]
