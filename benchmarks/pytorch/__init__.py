"""Sixty models through `torch.compile(model, backend="autotune")`: see `benchmarks.pytorch.__main__`."""
