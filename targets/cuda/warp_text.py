"""CUDA text of the tensor cores' instructions: `ldmatrix` and `mma.sync`.

A matrix of `ldmatrix` is 8 rows of 16 bytes, of which a lane gets 4 bytes. These are two numbers of 16 bits, four of 8,
or one of 32. Only matrices of 16-bit numbers can be transposed on the way. Factors of tfloat32 are rounded when they
are loaded, once for all products of them.
"""

from __future__ import annotations

from functools import partial

from search_space.ir.expr import Expr, dtype_bytes, substitute, var
from search_space.ir.polynomial import poly
from search_space.ir.rounding import TFLOAT32
from search_space.ir.stmt import For, Intrinsic, Operand
from search_space.warp_intrinsics import MMAS, Mma
from targets.base import BuildError
from targets.cuda.emit import INTRINSIC_EMITTERS, LOOP_EMITTERS, KernelText
from targets.cuda.program import ALIGNMENT

LANE = "(threadIdx.x & 31)"
"""The threads along x are the lanes of a warp."""
_PTX = {"float16": "f16", "bfloat16": "bf16", "uint8": "u8", "int8": "s8"}
_PTX |= {"float32": "f32", "int32": "s32", TFLOAT32: "tf32"}


def _address(text: KernelText, operand: Operand, row: str, column: str) -> str:
    """Writes the address of a row of 16 bytes of a tile.

    `row` and `column` are C texts, added to the position of the tile's first element.

    Raises:
        BuildError: rows that do not begin at a multiple of 16 bytes.
    """
    buffer = text.buffers[operand.buffer]
    offset = text.values.offset(buffer, operand.elements)
    start = text.simplify(substitute(offset, {"#0": 0, "#1": 0}))
    terms = dict(poly(offset))
    pitch, step = (terms.get((var(name),), 0) for name in ("#0", "#1"))
    width = ALIGNMENT // dtype_bytes(buffer.dtype)
    aligned = all(c % width == 0 for c in poly(start).values()) and pitch % width == 0
    if buffer.scope != "shared" or step != 1 or not aligned or _is_nonlinear(offset):
        raise BuildError(
            f"rows of a tile must begin at multiples of 16 bytes, but {operand.buffer} is read at {offset}"
        )
    return f"{text.names(buffer.name)} + {text.values.index(start)} + {row} * {pitch} + {column}"


def _element(text: KernelText, operand: Operand, row: str, column: str) -> str:
    """Writes one element of a tile."""
    buffer = text.buffers[operand.buffer]
    lanes = {"#0": row, "#1": column}
    offset = text.values.offset(buffer, operand.elements)
    start = text.simplify(substitute(offset, dict.fromkeys(lanes, 0)))
    steps = [f"{lanes[name]} * {poly(offset).get((var(name),), 0)}" for name in lanes]
    if _is_nonlinear(offset):
        raise BuildError(f"elements of a tile must lie evenly, but {operand.buffer} is read at {offset}")
    return f"{text.names(buffer.name)}[{' + '.join([text.values.index(start), *steps])}]"


def _is_nonlinear(index: Expr) -> bool:
    """Tells whether an element's offset depends on the tile's rows or columns in any but a linear way."""
    alone = {(var(name),) for name in ("#0", "#1")}
    return any(any("#" in str(atom) for atom in m) for m in poly(index) if m not in alone)


def _registers(text: KernelText, operand: Operand, count: int) -> list[str]:
    buffer = text.buffers[operand.buffer]
    first = text.values.offset(buffer, operand.indices)
    return [f"{text.names(buffer.name)}[{text.values.index(text.simplify(first + i))}]" for i in range(count)]


def _load_left(mma: Mma, text: KernelText, call: Intrinsic) -> None:
    """Loads four matrices of 8 rows: rows 8 apart first, then the second half of the depth."""
    (tile,) = call.inputs
    place = _address(text, tile, f"{LANE} % 16", f"{LANE} / 16 * {mma.depth // 2}")
    registers = _registers(text, call.output, 4)
    text.line(f"load_matrices4({', '.join(registers)}, {place});")
    if mma.dtypes[0] == TFLOAT32:
        for register in registers:
            text.line(f"{register} = tfloat32({register});")


def _load_right(mma: Mma, text: KernelText, call: Intrinsic) -> None:
    """Loads two matrices, the halves of the depth; transposed if the depth runs along the columns of memory."""
    (tile,) = call.inputs
    registers = _registers(text, call.output, 2)
    if mma.dtypes[1] == TFLOAT32:
        for i, register in enumerate(registers):
            element = _element(text, tile, f"({LANE} % 4 + {4 * i})", f"({LANE} / 4)")
            text.line(f"{register} = tfloat32({element});")
        return
    if mma.turned:
        address = _address(text, tile, f"{LANE} % 8", f"{LANE} / 8 % 2 * {mma.depth // 2}")
        function = "load_matrices2"
    else:
        address, function = _address(text, tile, f"{LANE} % 16", "0"), "load_transposed2"
    text.line(f"{function}({', '.join(registers)}, {address});")


def _load_pairs(mma: Mma, text: KernelText, loop: For, call: Intrinsic) -> bool:
    """Writes a loop of loads of the right operand as one of loads of two neighbours each; False where it cannot be.

    The upper half of the lanes says where the rows of the second one begin.
    """
    (tile,) = call.inputs
    if loop.extent.value % 2 or mma.dtypes[1] == TFLOAT32:  # which is rounded element by element
        return False
    following = {loop.var: var(loop.var) + 1}
    place, first = (text.values.offset(text.buffers[o.buffer], o.elements) for o in (tile, call.output))
    apart, registers = (text.simplify(substitute(e, following) - e) for e in (place, first))
    if not apart.is_const or not registers.is_const or registers.value != 2:
        return False
    if apart.value % (ALIGNMENT // dtype_bytes(text.buffers[tile.buffer].dtype)):
        return False
    if mma.turned:
        row, column, function = f"{LANE} % 8", f"{LANE} / 8 % 2 * {mma.depth // 2}", "load_matrices4"
    else:
        row, column, function = f"{LANE} % 16", "0", "load_transposed4"
    address = f"{_address(text, tile, row, column)} + {LANE} / 16 * {apart.value}"
    text.line("#pragma unroll")
    text.open(text.head(loop, step=2))
    text.line(f"{function}({', '.join(_registers(text, call.output, 4))}, {address});")
    text.close()
    return True


def _multiply(mma: Mma, text: KernelText, call: Intrinsic) -> None:
    """Multiplies fragments into the four registers of the sums, in place."""
    left, right, out = (_PTX[d] for d in mma.dtypes)
    sums = _registers(text, call.output, 4)
    factors = [*_registers(text, call.inputs[0], 4), *_registers(text, call.inputs[1], 2)]
    if mma.dtypes[0] == TFLOAT32:
        factors = [f"__float_as_int({f})" for f in factors]
    kind = "f" if out == "f32" else "r"
    name = f"mma.sync.aligned.m16n8k{mma.depth}.row.col.{out}.{left}.{right}.{out}"
    places = "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}"
    outputs = ", ".join(f'"+{kind}"({s})' for s in sums)
    inputs = ", ".join(f'"r"({f})' for f in factors)
    text.line(f'asm volatile("{name} {places};" : {outputs} : {inputs});')


def register() -> None:
    """Makes the instructions known to the emitter."""
    for mma in MMAS:
        for intrinsic, write in ((mma.left, _load_left), (mma.right, _load_right), (mma.product, _multiply)):
            INTRINSIC_EMITTERS[intrinsic.name] = partial(write, mma)
        LOOP_EMITTERS[mma.right.name] = partial(_load_pairs, mma)


register()
