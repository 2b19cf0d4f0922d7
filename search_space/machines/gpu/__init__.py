"""GPUs: grids of blocks of threads, with memory that a block shares."""
