"""A target as `docs/adding_a_target.md` describes one, and no more: loops of Python, run by Python."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from search_space.hardware import Hardware
from search_space.ir.expr import Expr
from search_space.ir.stmt import Allocate, Buffer, For, LoopProgram, Seq, Stmt, Store
from search_space.ir.verify import verify
from targets.base import Bound, BufferRef, BuildError, Kernel, Module, NetworkPlan, Target
from tests.targets.pyloops.executable import FORMAT, load_functions

Arrays = dict[str, NDArray[Any]]
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "lt": "<", "le": "<="}
_INFIX |= {"eq": "==", "ne": "!=", "and": "and", "or": "or", "shl": "<<", "shr": ">>", "bitand": "&"}
_REDUCTIONS = {"sum": "{0} + {1}", "prod": "{0} * {1}", "max": "max({0}, {1})", "min": "min({0}, {1})"}
_CALLS = {name: name for name in ("exp", "log", "tanh", "sqrt", "abs", "floor", "rint")}


def python_name(name: str) -> str:
    return "v_" + name.replace(".", "_")


def expression_text(e: Expr) -> str:
    if e.op == "const":
        return f"dtypes['{e.dtype}'].type({float(e.value)!r})" if e.dtype.startswith("float") else repr(e.value)
    if e.op == "var":
        return python_name(e.args[0])
    if e.op == "load":
        return f"{python_name(e.args[0])}[{', '.join(map(expression_text, e.args[1:])) or '()'}]"
    if e.op == "select":
        return f"({expression_text(e.args[1])} if {expression_text(e.args[0])} else {expression_text(e.args[2])})"
    if e.op == "cast":
        return f"dtypes['{e.dtype}'].type({expression_text(e.args[0])})"
    if e.op in ("min", "max"):
        return f"{e.op}({', '.join(map(expression_text, e.args))})"
    if e.op == "call" and e.args[0] in _CALLS:
        return f"np.{_CALLS[e.args[0]]}({expression_text(e.args[1])})"
    if e.op not in _INFIX:
        raise BuildError(f"an expression must be of what this target has code for, but got {e}")
    return f"({expression_text(e.args[0])} {_INFIX[e.op]} {expression_text(e.args[1])})"


def _store(stmt: Store, indent: str) -> list[str]:
    place = f"{python_name(stmt.buffer)}[{', '.join(map(expression_text, stmt.indices)) or '()'}]"
    value = expression_text(stmt.value)
    value = value if stmt.reducer is None else _REDUCTIONS[stmt.reducer].format(place, value)
    if stmt.predicate is None:
        return [f"{indent}{place} = {value}"]
    return [f"{indent}if {expression_text(stmt.predicate)}:", f"{indent} {place} = {value}"]


def _allocate(stmt: Allocate, indent: str) -> list[str]:
    shape = [int(extent.value) for extent in stmt.buffer.shape]
    made = f"{indent}{python_name(stmt.buffer.name)} = np.full({shape}, 77, dtypes['{stmt.buffer.dtype}'])"
    return [made, *emit_lines(stmt.body, indent)]


def _for(stmt: For, indent: str) -> list[str]:
    return [
        f"{indent}for {python_name(stmt.var)} in range({expression_text(stmt.extent)}):",
        *emit_lines(stmt.body, indent + " "),
    ]


_EMIT: dict[type[Stmt], Callable[[Any, str], list[str]]] = {
    Seq: lambda stmt, indent: [line for s in stmt.body for line in emit_lines(s, indent)],
    For: _for,
    Allocate: _allocate,
    Store: _store,
}


def emit_lines(stmt: Stmt, indent: str = " ") -> list[str]:
    if type(stmt) not in _EMIT:
        raise BuildError(f"a program must be made of loops, buffers and stores, but got {type(stmt).__name__}")
    return _EMIT[type(stmt)](stmt, indent)


def function_text(program: LoopProgram) -> str:
    arguments = ", ".join(python_name(buffer.name) for buffer in program.params)
    return "\n".join([f"def {program.name}({arguments}):", *(emit_lines(program.body) or [" pass"])])


def describe(buffer: Buffer) -> dict[str, Any]:
    """An array of which some elements may lie apart, as plain data."""
    shape, strides = ([int(e.value) for e in each] for each in (buffer.shape, buffer.strides))
    return {"shape": shape, "dtype": buffer.dtype, "strides": strides}


def call(plan: NetworkPlan, module: int, number: int, refs: Iterable[tuple[str, BufferRef]]) -> dict[str, Any]:
    """A function's call on arrays by their names, as plain data."""
    facts, places = plan.modules[module].metadata, dict(refs)
    name, parameters = facts["functions"][number]

    def argument(name: str) -> Mapping[str, Any]:
        at = places[name]
        return {"place": [at.space, at.number, at.beyond], **facts["arrays"][name]}

    return {"module": module, "function": name, "arguments": [argument(name) for name in parameters]}


class PyTarget(Target):
    name = "pyloops"
    hardware = Hardware("Python", 1, 64, 32, 1 << 15, 1 << 20, 1 << 25, 1e8, 1e9)

    def build(self, program: LoopProgram, name: str = "kernel") -> Module:
        verify(program)
        texts = [function_text(p) for p in (*program.prologues, program)]
        names = [[p.name, [b.name for b in p.params]] for p in (*program.prologues, program)]
        code, arrays = "\n".join(texts).encode(), {b.name: describe(b) for b in (*program.inputs, *program.params)}
        facts = {"functions": names, "arrays": arrays}
        return Module.of(program, name, self.name, code, facts)

    def load(self, module: Module) -> Kernel:
        return PyKernel(module)

    def assembly(self, module: Module) -> str:
        return module.object_code.decode()

    def link(self, plan: NetworkPlan, folder: Path) -> dict[str, Any]:
        modules, packings = [], []
        for module in plan.modules:
            data, file = module.to_bytes(), f"{module.name}.module"
            (folder / file).write_bytes(data)
            modules.append({"file": file, "sha256": hashlib.sha256(data).hexdigest()})
        for made in plan.packings:
            parameters = {p.name: p for p in plan.modules[made.module].parameters}
            number = [p.name for p in parameters.values() if p.packed_from].index(made.name)
            taken = zip((*parameters[made.name].packed_from, made.name), (*made.sources, made.result), strict=True)
            packings.append(call(plan, made.module, number, taken))
        calls = []
        for step in plan.steps:
            names = [p.name for p in plan.modules[step.module].parameters]
            calls.append(call(plan, step.module, -1, zip(names, step.arguments, strict=True)))
        memory = {"packed_bytes": plan.packed_bytes}
        return {"kind": FORMAT.kind, "modules": modules, "packings": packings, "calls": calls, "memory": memory}


class PyKernel(Kernel):
    def __init__(self, module: Module) -> None:
        self.module = module
        self._functions = load_functions(module)

    def bind(self, inputs: Sequence[NDArray[Any]], copies: int = 1, fenced: bool = False) -> Bound:
        self.check(inputs)
        arrays = {p.name: array.copy() for p, array in zip(self.module.sources, inputs, strict=True)}
        for p in self.module.parameters:
            if p.name not in arrays:
                arrays[p.name] = np.full(p.shape, 77, numpy_dtype(p.dtype))
        *prologues, main = self.module.metadata["functions"]
        for name, taken in prologues:
            self._functions[name](*(arrays[n] for n in taken))
        given = [None if p.constant else arrays[p.name] for p in self.module.sources]
        call = self._functions[main[0]]
        return PyBound(lambda: call(*(arrays[n] for n in main[1])), [arrays[n] for n in self.module.outputs], given)


class PyBound(Bound):
    def __init__(
        self, call: Callable[[], None], outputs: Sequence[NDArray[Any]], arrays: Sequence[NDArray[Any] | None]
    ) -> None:
        self._call, self.outputs, self._arrays = call, outputs, arrays

    def feed(self, inputs: Sequence[NDArray[Any]], fill: int) -> None:
        for place, array in zip(self._arrays, inputs, strict=True):  # intermediate results are made anew by each run
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


@cache
def get_target(spec: str) -> Target:
    return PyTarget()
