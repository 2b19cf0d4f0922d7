"""Front ends: modules that read a model of another tool as a graph."""
