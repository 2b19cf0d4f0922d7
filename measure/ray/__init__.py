"""Measuring on Ray: actors that build and run trials, on a Ray that is started here or on a cluster."""

from search_space.extras import require

require("measuring on Ray", "ray")
