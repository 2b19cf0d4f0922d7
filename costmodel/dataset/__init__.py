"""Datasets of measured programs: kept as symbolic schedules and their decisions, features made anew on reading."""

from costmodel.dataset.dataset import SHIPPED_DATASET, Block, Dataset, SketchData, TaskData
from costmodel.dataset.errors import DatasetError
from costmodel.dataset.split import (
    Split,
    TaskPrograms,
    split_by_network,
    split_by_target,
    split_by_task,
    split_within,
)

__all__ = [
    "SHIPPED_DATASET",
    "Block",
    "Dataset",
    "DatasetError",
    "TaskPrograms",
    "SketchData",
    "Split",
    "TaskData",
    "split_by_network",
    "split_by_target",
    "split_by_task",
    "split_within",
]
