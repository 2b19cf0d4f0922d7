"""Devices over the network: a worker serves one, a tracker gives them out, a client measures on them."""

import os

from search_space.extras import require

require("measuring by RPC", "grpc")

# We report broken connections ourselves, once and in a sentence; gRPC reads this variable on import.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
