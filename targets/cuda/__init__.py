"""NVIDIA GPUs: loop programs as CUDA kernels, compiled with no device, run through CUDA."""
