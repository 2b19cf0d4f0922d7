"""Programs as sequences of schedule primitives, and what can be learned from these alone (TLP, Zhai et al., 2023)."""

from costmodel.sequences.ansor import Logged, read_log
from costmodel.sequences.encoding import encode
from costmodel.sequences.shards import Sequences, write_shards

__all__ = ["Logged", "Sequences", "encode", "read_log", "write_shards"]
