"""Products of matrices that are computed at run time."""

from __future__ import annotations

import math

from autotune.graph.emitter import NodeEmitter


def multiply_matrices(emitter: NodeEmitter, left: str, right: str) -> str:
    """Multiplies two matrices; a large transposed right factor stays in place by x w^T = (w x^T)^T."""
    before = _transpose_source(emitter, right)
    if before and (again := _transpose_source(emitter, before)):
        right, before = again, ""
    size = math.prod(emitter.shape(right))
    results = emitter.shape(left)[0] * emitter.shape(right)[1]
    if not before or size <= math.prod(emitter.shape(left)) + results:
        return emitter.add("matmul", [left, right])
    out = emitter.add("matmul", [before, emitter.add("transpose", [left], axes=(1, 0))])
    return emitter.add("transpose", [out], axes=(1, 0))


def _transpose_source(emitter: NodeEmitter, matrix: str) -> str:
    """Returns the matrix that another one transposes, or ""."""
    node = emitter.builder.node(matrix)
    return node.inputs[0] if node is not None and node.op == "transpose" else ""
