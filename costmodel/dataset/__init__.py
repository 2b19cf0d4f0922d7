"""Datasets of measured programs: kept as symbolic schedules and their decisions, features made anew on reading."""

from costmodel.dataset.dataset import Block, Dataset, SketchData, TaskData
from costmodel.dataset.errors import DatasetError

__all__ = ["Block", "Dataset", "DatasetError", "SketchData", "TaskData"]
