"""Our kernels on an NVIDIA GPU beside PyTorch's (cuBLAS, cuDNN), in turns on one queue."""
