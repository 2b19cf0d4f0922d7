"""A GPU tried out from the bottom up, each rung in a process of its own: `python -m benchmarks.gpu.ladder`."""
