"""Transfer of knowledge from other tasks, workloads or machines to a new search."""

from costmodel.transfer.base import Base
from costmodel.transfer.errors import TransferError
from costmodel.transfer.tasks import TargetTask
from costmodel.transfer.transfer import Options, Source, Transfer, summary

__all__ = ["Base", "Options", "Source", "TargetTask", "Transfer", "TransferError", "summary"]
