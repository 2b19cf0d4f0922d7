"""Products with weights of a few bits: ONNX Runtime's `MatMulNBits` of the domain com.microsoft."""

from __future__ import annotations

import math

import numpy as np
import onnx

from autotune.graph.calls import Call
from autotune.graph.frontends.onnx.importer.registry import imports
from autotune.graph.ir import Array
from search_space.dtypes import FLOATS

MICROSOFT = "com.microsoft"
IN_BYTES = 4
"""The `accuracy_level` that quantises data to bytes; all others keep floats."""


@imports("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(call: Call) -> str:
    """Multiplies A (..., K) by transposed B (N, K), whose 4- or 8-bit numbers share scales in blocks along K."""
    depth, columns, bits, block = (int(call.attrs.get(name, 4 if name == "bits" else 0)) for name in _SIZES)
    call.require(bits in (4, 8), "must have weights of 4 or 8 bits", f"bits={bits}")
    call.require(block >= 16 and block & (block - 1) == 0, "must have blocks of a power of two, 16 or more", block)
    call.require(not call.has(4), "must have no g_idx", call.inputs[4] if call.has(4) else "")
    call.require(not call.attrs.get("weight_prepacked", 0), "must have weights that are not prepacked", "others")
    blocks = -(-depth // block)
    packed = call.require_array(1, "B")
    shape = (columns, blocks, block * bits // 8)
    call.require(
        packed.dtype == np.uint8 and packed.size == math.prod(shape),
        f"must have a uint8 B {shape}",
        _describe_type(packed),
    )
    scales = call.require_array(2, "scales")
    call.require(scales.size == columns * blocks, f"must have scales ({columns}, {blocks})", _describe_type(scales))
    weight = packed.reshape(shape).transpose(1, 2, 0)
    constants = [weight, scales.reshape(columns, blocks).T]
    if call.has(3):
        constants.append(_zeros(call, columns, blocks, bits).T)
    shape_of_data = call.shape(call.value(0))
    call.require(shape_of_data[-1:] == (depth,), f"must have an A of {depth} columns", list(shape_of_data))
    rows = call.reshape(call.value(0), (math.prod(shape_of_data[:-1]), depth))
    names = [call.constant(np.ascontiguousarray(array)) for array in constants]
    # `accuracy_level` 4 allows rounding of data to bytes, in blocks. ONNX Runtime does not round data if zeros are
    # floats.
    in_bytes = int(call.attrs.get("accuracy_level", 0)) == IN_BYTES and not _has_float_zeros(call)
    product = "dynamic_matmul" if in_bytes else "matmul_nbits"
    out = call.reshape(call.add(product, [rows, *names], bits=bits), (*shape_of_data[:-1], columns))
    return call.add("add", [out, call.value(5)]) if call.has(5) else out


def _has_float_zeros(call: Call) -> bool:
    return call.has(3) and call.type(3).dtype in FLOATS


def in_floats(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copies a model without its permission to round data in products with weights of a few bits."""
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
    """Reads zeros (N, blocks): bytes, packed like the weights, or floats, which may be fractional."""
    values = call.require_array(3, "zero_points")
    if values.dtype != np.uint8:
        call.require(
            values.size == columns * blocks, f"must have zero_points ({columns}, {blocks})", _describe_type(values)
        )
        zeros = values.astype(np.float32).reshape(columns, blocks)
        whole = bool(((zeros == np.floor(zeros)) & (zeros >= 0) & (zeros < 256)).all())
        return zeros.astype(np.uint8) if whole else zeros
    length = -(-blocks * bits // 8)
    call.require(
        values.size == columns * length, f"must have zero_points ({columns}, {length})", _describe_type(values)
    )
    rows = values.reshape(columns, length)
    if bits == 4:
        rows = np.stack([rows & 15, rows >> 4], axis=-1).reshape(columns, -1)[:, :blocks]
    return rows


def _describe_type(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)}"
