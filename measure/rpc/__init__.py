"""Devices over the network: a worker serves one, a tracker gives them out, a client measures on them."""
