"""Portable C99: kernels and networks as source to read, for any C compiler."""
