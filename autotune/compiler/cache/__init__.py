"""Cache on disk of results of compiling: choices without trials and the code of kernels."""
