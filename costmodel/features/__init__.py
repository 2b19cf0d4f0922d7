"""Features of a population: one traversal of a sketch's program, evaluated on columns."""

from costmodel.features.extractor import FeatureExtractor

__all__ = ["FeatureExtractor"]
