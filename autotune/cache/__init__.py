"""What compiling has found out before, on disk: the roofline's choices and the code of kernels."""
