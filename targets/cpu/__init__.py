"""The CPU target: loop programs to LLVM IR, machine code through llvmlite, threads from an OpenMP runtime."""
