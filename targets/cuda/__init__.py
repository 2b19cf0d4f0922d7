"""NVIDIA GPUs: loop programs as CUDA kernels, compiled with no device, checked by an emulator, run through CUDA."""
