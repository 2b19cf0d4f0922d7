"""Executables of networks: written to a folder, loaded from it and run with no Python between the kernels."""
