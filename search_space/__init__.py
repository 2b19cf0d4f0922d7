"""Tensor expressions, schedules and symbolic search spaces over them."""
