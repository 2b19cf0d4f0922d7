"""Side-by-side comparison with peers, each in a process of its own; `python -m benchmarks.NAME` runs one."""
