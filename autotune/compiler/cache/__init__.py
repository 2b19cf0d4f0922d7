"""What compiling has found out before, on disk: choices without trials and the code of kernels."""
