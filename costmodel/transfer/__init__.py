"""What is known from other tasks, workloads or machines, so that a new search begins with it."""

from costmodel.transfer.base import Base
from costmodel.transfer.errors import TransferError
from costmodel.transfer.tasks import TargetTask
from costmodel.transfer.transfer import Options, Source, Transfer, summary

__all__ = ["Base", "Options", "Source", "TargetTask", "Transfer", "TransferError", "summary"]
