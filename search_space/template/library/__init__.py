"""Templates that come along: worked examples, and search spaces to compare with those of sketch rules."""
