"""Templates of the library: worked examples, and search spaces to compare with those of sketch rules."""
