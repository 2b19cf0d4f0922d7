"""PyTorch's front: a backend of `torch.compile`, and what it says of a model. See docs/pytorch.md."""
