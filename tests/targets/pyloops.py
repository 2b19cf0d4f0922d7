"""A target as `docs/adding_a_target.md` describes one, and no more: loops of Python, run by Python."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from search_space.hardware import Hardware
from search_space.ir.expr import Expr
from search_space.ir.stmt import Allocate, Buffer, For, LoopProgram, Seq, Stmt, Store
from search_space.ir.verify import verify
from targets.base import Bound, BuildError, Kernel, Module, Parameter, Target

Arrays = dict[str, NDArray[Any]]
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "lt": "<", "le": "<="}
_INFIX |= {"eq": "==", "ne": "!=", "and": "and", "or": "or"}
_REDUCED = {"sum": "{0} + {1}", "prod": "{0} * {1}", "max": "max({0}, {1})", "min": "min({0}, {1})"}
_CALLS = {name: name for name in ("exp", "log", "tanh", "sqrt", "abs", "floor", "rint")}


def name_of(name: str) -> str:
    return "v_" + name.replace(".", "_")


def text_of(e: Expr) -> str:
    if e.op == "const":
        return f"dtypes['{e.dtype}'].type({float(e.value)!r})" if e.dtype.startswith("float") else repr(e.value)
    if e.op == "var":
        return name_of(e.args[0])
    if e.op == "load":
        return f"{name_of(e.args[0])}[{', '.join(map(text_of, e.args[1:])) or '()'}]"
    if e.op == "select":
        return f"({text_of(e.args[1])} if {text_of(e.args[0])} else {text_of(e.args[2])})"
    if e.op == "cast":
        return f"dtypes['{e.dtype}'].type({text_of(e.args[0])})"
    if e.op in ("min", "max"):
        return f"{e.op}({', '.join(map(text_of, e.args))})"
    if e.op == "call" and e.args[0] in _CALLS:
        return f"np.{_CALLS[e.args[0]]}({text_of(e.args[1])})"
    if e.op not in _INFIX:
        raise BuildError(f"an expression must be of what this target has code for, but got {e}")
    return f"({text_of(e.args[0])} {_INFIX[e.op]} {text_of(e.args[1])})"


def _store(stmt: Store, indent: str) -> list[str]:
    place = f"{name_of(stmt.buffer)}[{', '.join(map(text_of, stmt.indices)) or '()'}]"
    value = text_of(stmt.value)
    value = value if stmt.reducer is None else _REDUCED[stmt.reducer].format(place, value)
    if stmt.predicate is None:
        return [f"{indent}{place} = {value}"]
    return [f"{indent}if {text_of(stmt.predicate)}:", f"{indent} {place} = {value}"]


def _allocate(stmt: Allocate, indent: str) -> list[str]:
    shape = [int(extent.value) for extent in stmt.buffer.shape]
    made = f"{indent}{name_of(stmt.buffer.name)} = np.full({shape}, 77, dtypes['{stmt.buffer.dtype}'])"
    return [made, *lines_of(stmt.body, indent)]


def _for(stmt: For, indent: str) -> list[str]:
    return [f"{indent}for {name_of(stmt.var)} in range({text_of(stmt.extent)}):", *lines_of(stmt.body, indent + " ")]


_EMIT: dict[type[Stmt], Callable[[Any, str], list[str]]] = {
    Seq: lambda stmt, indent: [line for s in stmt.body for line in lines_of(s, indent)],
    For: _for,
    Allocate: _allocate,
    Store: _store,
}


def lines_of(stmt: Stmt, indent: str = " ") -> list[str]:
    if type(stmt) not in _EMIT:
        raise BuildError(f"a program must be made of loops, buffers and stores, but got {type(stmt).__name__}")
    return _EMIT[type(stmt)](stmt, indent)


def function_of(program: LoopProgram) -> str:
    arguments = ", ".join(name_of(buffer.name) for buffer in program.params)
    return "\n".join([f"def {program.name}({arguments}):", *(lines_of(program.body) or [" pass"])])


def parameter(buffer: Buffer, packed_from: tuple[str, ...] = ()) -> Parameter:
    shape = tuple(int(extent.value) for extent in buffer.shape)
    return Parameter(buffer.name, shape, buffer.dtype, buffer.constant, packed_from)


class PyTarget(Target):
    name = "pyloops"
    hardware = Hardware("Python", 1, 64, 32, 1 << 15, 1 << 20, 1 << 25, 1e8, 1e9)

    def build(self, program: LoopProgram, name: str = "kernel") -> Module:
        verify(program)
        packed = {p.outputs[0]: tuple(b.name for b in p.inputs) for p in program.prologues}
        parameters = tuple(parameter(b, packed.get(b.name, ())) for b in program.params)
        texts = [function_of(p) for p in (*program.prologues, program)]
        names = [[p.name, [b.name for b in p.params]] for p in (*program.prologues, program)]
        sources = tuple(map(parameter, program.inputs))
        code = "\n".join(texts).encode()
        return Module(name, self.name, code, "", parameters, program.outputs, sources, {"functions": names})

    def load(self, module: Module) -> Kernel:
        return PyKernel(module)

    def assembly(self, module: Module) -> str:
        return module.object_code.decode()


class PyKernel(Kernel):
    def __init__(self, module: Module) -> None:
        self.module = module
        dtypes = {dtype: numpy_dtype(dtype) for dtype in ("float32", "int32", "int64")}
        self._scope: dict[str, Any] = {"np": np, "inf": np.inf, "nan": np.nan, "dtypes": dtypes}
        exec(compile(module.object_code, module.name, "exec"), self._scope)

    def bind(self, inputs: Sequence[NDArray[Any]], copies: int = 1, fenced: bool = False) -> Bound:
        self.check(inputs)
        arrays = {p.name: array.copy() for p, array in zip(self.module.sources, inputs, strict=True)}
        for p in self.module.parameters:
            if p.name not in arrays:
                arrays[p.name] = np.full(p.shape, 77, numpy_dtype(p.dtype))
        *prologues, main = self.module.metadata["functions"]
        for name, taken in prologues:
            self._scope[name](*(arrays[n] for n in taken))
        given = [None if p.constant else arrays[p.name] for p in self.module.sources]
        call = self._scope[main[0]]
        return PyBound(lambda: call(*(arrays[n] for n in main[1])), [arrays[n] for n in self.module.outputs], given)


class PyBound(Bound):
    def __init__(
        self, call: Callable[[], None], outputs: Sequence[NDArray[Any]], given: Sequence[NDArray[Any] | None]
    ) -> None:
        self._call, self.outputs, self._given = call, outputs, given

    def feed(self, inputs: Sequence[NDArray[Any]], fill: int) -> None:
        for place, array in zip(self._given, inputs, strict=True):  # intermediate results are made anew by each run
            if place is not None:
                place[...] = array

    def fetch(self) -> NDArray[Any]:
        return self.outputs[0]

    def run(self, threads: int | None = None) -> NDArray[Any]:
        self._call()
        return self.outputs[0]

    def time(self, iterations: int, threads: int | None = None) -> NDArray[np.float64]:
        seconds = []
        for _ in range(iterations):
            start = time.perf_counter()
            self._call()
            seconds.append(time.perf_counter() - start)
        return np.array(seconds)


def get_target(spec: str) -> Target:
    return PyTarget()
