"""Features of a population: one traversal of a sketch's program, evaluated on columns."""

from costmodel.features.extractor import FeatureExtractor, Shared, extractor_of
from costmodel.features.groups import NAMES, SECONDS

__all__ = ["NAMES", "SECONDS", "FeatureExtractor", "Shared", "extractor_of"]
