"""The choice of types kernel by kernel, for mixed precision."""
