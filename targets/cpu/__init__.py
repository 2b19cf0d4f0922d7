"""The CPU target: loop programs to LLVM IR, machine code through llvmlite, threads from a pool of its own."""
