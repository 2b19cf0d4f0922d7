"""Steps of training through `torch.compile`, beside eager PyTorch and Inductor."""
