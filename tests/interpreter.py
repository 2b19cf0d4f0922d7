"""The reference interpreter: executes a concrete loop program element by element. Slow, obvious, the oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from search_space.ir.expr import BOOL, FLOATS, Expr, load, transform
from search_space.ir.rounding import match_clamp
from search_space.ir.semantics import BINARY, apply_function
from search_space.ir.stmt import Allocate, Barrier, For, Intrinsic, LoopProgram, Operand, Seq, Stmt, Store
from search_space.schedule.intrinsics import get_intrinsic

Arrays = dict[str, NDArray[Any]]


def interpret(program: LoopProgram, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Runs the prologues, then the program.

    Args:
        program: every extent a number.
        arrays: inputs by the name of the original (unpacked) parameter; outputs are allocated here.

    Returns:
        Every parameter by name, the outputs computed.

    Raises:
        IndexError: an access out of bounds: a bug in lowering.
    """
    memory: Arrays = dict(arrays)
    for prologue in program.prologues:
        memory |= interpret(prologue, {b.name: memory[b.name] for b in prologue.inputs})
    for buffer in program.params:
        shape = tuple(int(e.value) for e in buffer.shape)
        if buffer.name not in memory:
            memory[buffer.name] = _make_undefined(shape, buffer.dtype)
        elif memory[buffer.name].shape != shape:
            raise ValueError(f"`{buffer.name}` must have shape {shape}, but got shape={memory[buffer.name].shape}")
    with np.errstate(all="ignore"):
        _run(program.body, {}, memory)
    return memory


def _make_undefined(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    array = np.empty(shape, numpy_dtype(dtype))
    array[...] = np.nan if dtype in FLOATS else 77 % (2 if dtype == BOOL else 128)
    return array


def _run(stmt: Stmt, env: dict[str, int], memory: Arrays) -> None:
    if isinstance(stmt, Seq):
        for s in stmt.body:
            _run(s, env, memory)
    elif isinstance(stmt, For):
        for i in range(int(evaluate(stmt.extent, env, memory))):
            env[stmt.var] = i
            _run(stmt.body, env, memory)
    elif isinstance(stmt, Allocate):
        shape = tuple(int(evaluate(e, env, memory)) for e in stmt.buffer.shape)
        outer = memory.get(stmt.buffer.name)
        memory[stmt.buffer.name] = _make_undefined(shape, stmt.buffer.dtype)
        _run(stmt.body, env, memory)
        if outer is None:
            del memory[stmt.buffer.name]
        else:
            memory[stmt.buffer.name] = outer
    elif isinstance(stmt, Store):
        _store(stmt, env, memory)
    elif not isinstance(stmt, Barrier):
        assert isinstance(stmt, Intrinsic), stmt
        _execute(stmt, env, memory)


def _store(stmt: Store, env: Mapping[str, int], memory: Arrays) -> None:
    if stmt.predicate is not None and not evaluate(stmt.predicate, env, memory):
        return
    array = memory[stmt.buffer]
    at = _index_function(stmt.buffer, stmt.indices)(env, memory)
    value = evaluate(stmt.value, env, memory)
    if stmt.reducer is not None:
        old = array[at]
        combine = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}[stmt.reducer]
        value = BINARY[combine].number(old, array.dtype.type(value))
    array[at] = value


def _execute(call: Intrinsic, env: Mapping[str, int], memory: Arrays) -> None:
    """Runs the tensor expression of an instruction on the operands' tiles, element by element."""
    intrinsic = get_intrinsic(call.name)
    assert intrinsic.op.body is not None
    operands = dict(zip(intrinsic.op.inputs, call.inputs, strict=True))
    names = {tensor: f"%{i}" for i, tensor in enumerate(operands)}

    def read(node: Expr) -> Expr | None:  # the one element of each operand that a point reads
        return load(names[node.args[0]], [0], node.dtype) if node.op == "load" else None

    body = transform(intrinsic.op.body, read)

    def element(operand: Operand, point: tuple[int, ...]) -> tuple[int, ...]:
        variables = {**env, **{f"#{i}": p for i, p in enumerate(point)}}
        return _index_function(operand.buffer, operand.elements)(variables, memory)

    target = memory[call.output.buffer]
    if call.reset:
        for point in product(*(range(a.extent) for a in intrinsic.op.axis)):
            target[element(call.output, point)] = 0
    for point in product(*(range(e) for e in intrinsic.extents)):
        elements = {names[t]: np.asarray(memory[o.buffer][element(o, point)]).reshape(1) for t, o in operands.items()}
        value = evaluate(body, env, {**memory, **elements})
        at = element(call.output, point)
        target[at] = value if intrinsic.reducer is None else target[at] + target.dtype.type(value)


IndexFunction = Callable[[Mapping[str, int], Arrays], tuple[int, ...]]
Value = Callable[[Mapping[str, int], Arrays], Any]


@lru_cache(maxsize=1 << 14)
def _index_function(name: str, indices: tuple[Expr, ...]) -> IndexFunction:
    """Compiles the place of an access to a function of variables and memory."""
    each = [_value(index) for index in indices]

    def element(env: Mapping[str, int], memory: Arrays) -> tuple[int, ...]:
        at = tuple([int(value(env, memory)) for value in each])
        for i, n in zip(at, memory[name].shape, strict=True):
            if not 0 <= i < n:
                raise IndexError(f"{name}[{', '.join(map(str, at))}] must lie in shape {memory[name].shape}")
        return at

    return element


def evaluate(e: Expr, env: Mapping[str, int], memory: Arrays) -> Any:
    """The value of an expression, with the rounding of its dtype."""
    return _value(e)(env, memory)


@lru_cache(maxsize=1 << 14)
def _value(e: Expr) -> Value:
    """An expression as a function: its nodes are told apart once, and not for each element."""
    op, dtype = e.op, e.dtype
    if op == "const":
        constant = e.value if dtype == "int64" else numpy_dtype(dtype).type(e.value)
        return lambda env, memory: constant
    if op == "var":
        name = e.args[0]
        return lambda env, memory: env[name]
    if op == "load":
        buffer, place = e.args[0], _index_function(e.args[0], e.args[1:])
        return lambda env, memory: memory[buffer][place(env, memory)]
    if op == "select":
        condition, then, otherwise = map(_value, e.args)
        return lambda env, memory: then(env, memory) if condition(env, memory) else otherwise(env, memory)
    if op == "cast":
        within = match_clamp(e)
        value = _value(e.args[0] if within is None else within.number)
        if within is None:
            return lambda env, memory: _cast(value(env, memory), dtype)
        low, high = np.float32(within.low), np.float32(within.high)  # NaN becomes the lower limit
        return lambda env, memory: _cast(np.fmin(np.fmax(value(env, memory), low), high), dtype)
    if op == "call":
        function, argument = e.args[0], _value(e.args[1])
        return lambda env, memory: apply_function(function, argument(env, memory), dtype)[()]
    number = BINARY[op].number
    left, right = map(_value, e.args)
    return lambda env, memory: number(left(env, memory), right(env, memory))


def _cast(value: Any, dtype: str) -> Any:
    if dtype in ("int8", "uint8", "int32", "int64"):
        return np.asarray(int(value)).astype(dtype)[()]
    return numpy_dtype(dtype).type(value)
