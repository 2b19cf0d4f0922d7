"""Programs as sequences of schedule primitives, and models that learn from these alone (TLP, Zhai et al., 2023)."""

from autotune.lab.sequences.ansor import LogEntry, read_log
from autotune.lab.sequences.encoding import encode
from autotune.lab.sequences.shards import Sequences, write_shards

__all__ = ["LogEntry", "Sequences", "encode", "read_log", "write_shards"]
