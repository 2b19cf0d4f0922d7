"""Portable C99: kernels and networks as source to read, compiled by whatever compiler there is."""
