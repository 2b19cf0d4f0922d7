"""Devices over the network: a worker serves one, a tracker gives them out, a client measures on them."""

import os

from search_space.extras import require

require("measuring by RPC", "grpc")

# Connections that are cut are reported by us, once and in a sentence; gRPC reads this when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
