"""Products with weights of a few bits, as ONNX Runtime has them: `MatMulNBits` of the domain com.microsoft."""

from __future__ import annotations

import math

import numpy as np
import onnx

from autotune.graph.importer.registry import Call, imports
from autotune.graph.ir import Array

MICROSOFT = "com.microsoft"
IN_BYTES = 4
"""The `accuracy_level` of data in bytes; all others are of floats."""


@imports("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(call: Call) -> str:
    """A (..., K) times the transposed B (N, K), whose numbers of 4 or 8 bits share scales in blocks along K."""
    depth, columns, bits, block = (int(call.attrs.get(name, 4 if name == "bits" else 0)) for name in _SIZES)
    call.require(bits in (4, 8), "must have weights of 4 or 8 bits", f"bits={bits}")
    call.require(block >= 16 and block & (block - 1) == 0, "must have blocks of a power of two, 16 or more", block)
    call.require(not call.has(4), "must have no g_idx", call.inputs[4] if call.has(4) else "")
    call.require(not call.attrs.get("weight_prepacked", 0), "must have weights that are not prepacked", "others")
    blocks = -(-depth // block)
    packed = call.known(1, "B")
    shape = (columns, blocks, block * bits // 8)
    call.require(
        packed.dtype == np.uint8 and packed.size == math.prod(shape), f"must have a uint8 B {shape}", _of(packed)
    )
    scales = call.known(2, "scales")
    call.require(scales.size == columns * blocks, f"must have scales ({columns}, {blocks})", _of(scales))
    weight = packed.reshape(shape).transpose(1, 2, 0)
    constants = [weight, scales.reshape(columns, blocks).T]
    if call.has(3):
        constants.append(_zeros(call, columns, blocks, bits).T)
    given = call.shape(call.value(0))
    call.require(given[-1:] == (depth,), f"must have an A of {depth} columns", list(given))
    rows = call.reshaped(call.value(0), (math.prod(given[:-1]), depth))
    names = [call.constant(np.ascontiguousarray(array)) for array in constants]
    # The model says how far data may be rounded: 4 is to bytes, in blocks.
    product = "dynamic_matmul" if int(call.attrs.get("accuracy_level", 0)) == IN_BYTES else "matmul_nbits"
    out = call.reshaped(call.add(product, [rows, *names], bits=bits), (*given[:-1], columns))
    return call.add("add", [out, call.value(5)]) if call.has(5) else out


def in_floats(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model whose products with weights of a few bits are all of data in floats."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    for node in out.graph.node:
        if node.op_type == "MatMulNBits":
            kept = [item for item in node.attribute if item.name != "accuracy_level"]
            del node.attribute[:]
            node.attribute.extend(kept)
    return out


_SIZES = ("K", "N", "bits", "block_size")


def _zeros(call: Call, columns: int, blocks: int, bits: int) -> Array:
    """Zeros as bytes (N, blocks): given so, packed like the weights, or as whole numbers in floats."""
    given = call.known(3, "zero_points")
    if given.dtype != np.uint8:
        whole = given.astype(np.float32).reshape(-1)
        fits = whole.size == columns * blocks and bool(
            ((whole == np.floor(whole)) & (whole >= 0) & (whole < 256)).all()
        )
        call.require(fits, f"must have whole zero_points ({columns}, {blocks}) from 0 to 255", _of(given))
        return whole.astype(np.uint8).reshape(columns, blocks)
    length = -(-blocks * bits // 8)
    call.require(given.size == columns * length, f"must have zero_points ({columns}, {length})", _of(given))
    rows = given.reshape(columns, length)
    if bits == 4:
        rows = np.stack([rows & 15, rows >> 4], axis=-1).reshape(columns, -1)[:, :blocks]
    return rows


def _of(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)}"
