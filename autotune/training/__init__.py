"""Training steps as executables: forward, gradients and optimiser in one network, without PyTorch when it runs."""
