"""Gradients of tensor expressions: reverse mode over stages, as tensor expressions."""
