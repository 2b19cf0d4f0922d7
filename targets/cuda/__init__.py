"""NVIDIA GPUs: loop programs become CUDA kernels, compiled without a device, checked by an emulator, run through CUDA."""
