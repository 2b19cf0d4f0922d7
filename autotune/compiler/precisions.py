"""Names of the types that executables multiply, as results show them."""

from __future__ import annotations

from autotune.compiler.prepare import Network
from autotune.titles import INT8


def own_precision(network: Network) -> str:
    """Names the type that our executable of a network multiplies."""
    if network.accuracy is not None:
        return network.accuracy.storage
    on_bytes = network.imported_layers is not None and network.imported_layers.layers > 0
    return INT8 if on_bytes else network.precision
