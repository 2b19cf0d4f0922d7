"""Convolutions lowered as TVM's template for VTA lowers them, and the layers that were measured with it on a board."""
