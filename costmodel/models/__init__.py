"""Cost models; see `registry` for their names."""
