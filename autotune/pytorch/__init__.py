"""PyTorch's front end: a backend of `torch.compile`, and a report on a model. See docs/pytorch.md."""
