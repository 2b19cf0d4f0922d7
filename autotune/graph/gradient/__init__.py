"""Gradients of graphs: reverse mode over nodes, as nodes of the same graph."""
