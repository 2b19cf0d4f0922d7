"""C source of networks in one file: kernels, weights, and a function that calls the kernels in turn."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from search_space.dtypes import numpy_dtype
from targets.arrays import C_TYPE
from targets.base import BufferRef, NetworkPlan, Parameter, Step
from targets.c.compiler import Compiler
from targets.c.emit import break_line
from targets.c.export import wrap_in_guards
from targets.c.helpers import helper_text
from targets.c.names import Names
from targets.c.source import INCLUDES, PREAMBLE, TIMER, Source
from targets.c.values import HALVES, float_literal
from targets.cstyle.spelling import identifier
from targets.network_library import KIND, replace_files

MOST_WEIGHTS = 4 << 20
"""Bytes of weights that are written into the text; larger weights are passed to each call."""
_COLUMNS = 8
_MEMBER = {"float": "f32", "int8_t": "i8", "uint8_t": "u8", "uint16_t": "u16", "int32_t": "i32", "int64_t": "i64"}


class NetworkText:
    """A writer of one network.

    Args:
        plan: plan of the network.
    """

    def __init__(self, plan: NetworkPlan) -> None:
        self.plan = plan
        self.sources = [Source.of(module).functions[0] for module in plan.modules]
        self.weights_as_argument = plan.weights_bytes > MOST_WEIGHTS
        own = ("memory", "weights", "status", "arguments", "threads", "ticks", "NULL")
        names = Names(plan.name, f"{plan.name}_run", *own, *(f.name for f in self.sources))
        self.inputs = [names.fresh(identifier(p.name)) for p in plan.inputs]
        given = {p.name for p in plan.inputs}
        outputs = (f"{p.name}_output" if p.name in given else p.name for p in plan.outputs)
        self.outputs = [names.fresh(identifier(name)) for name in outputs]
        self.weights: dict[tuple[int, str, int], str] = {}

    # ------------------------------------------------------------------ the interface
    def arguments(self) -> list[str]:
        """Lists the declared parameters of a call."""
        given = ["const void *weights"] * self.weights_as_argument
        given += [f"const {C_TYPE[p.dtype]} *{n}" for p, n in zip(self.plan.inputs, self.inputs, strict=True)]
        return given + [f"{C_TYPE[p.dtype]} *{n}" for p, n in zip(self.plan.outputs, self.outputs, strict=True)]

    def header(self) -> str:
        """Writes the C header."""
        plan, upper = self.plan, self.plan.name.upper()
        arrays = zip([*plan.inputs, *plan.outputs], [*self.inputs, *self.outputs], strict=True)
        shapes = "".join(f"\n *   {n}: {''.join(f'[{e}]' for e in p.shape)} of {p.dtype}" for p, n in arrays)
        weights = (
            f"\n *   weights: what {plan.name}.weights holds, at a multiple of 64 bytes"
            if self.weights_as_argument
            else ""
        )
        return wrap_in_guards(
            plan.name,
            f"#define {upper}_WEIGHTS_BYTES {plan.weights_bytes}\n"
            f"#define {upper}_ARENA_BYTES {plan.arena_bytes} /* of activations; workspaces follow */\n",
            '#ifdef __cplusplus\nextern "C" {\n#endif\n',
            f"/* One inference on dense, row-major arrays, which must not overlap; 0, or -1 where one is NULL.\n"
            f" * Its memory is static: one call at a time.{shapes}{weights}\n */\n"
            f"int32_t {plan.name}_run({', '.join(self.arguments())});\n",
            "#ifdef __cplusplus\n}\n#endif\n",
        )

    # ------------------------------------------------------------------ the source
    def source(self, header: str = "") -> str:
        """Writes the C file, which contains the text of its header if one is passed."""
        calls = [self._call(step) for step in self.plan.calls]  # names the weights
        helpers = {helper for function in self.sources for helper in function.helpers}
        parts = [
            f"{INCLUDES}#include <stddef.h>\n",
            header or f'#include "{self.plan.name}.h"\n',
            helper_text(helpers),
            *self._constants(),
            *(f"{f.workspace}" for f in self.sources if f.workspace),
            *(f"{f.comment}\nstatic {f.prototype} {{\n{f.body}\n}}\n" for f in self.sources),
            self._memory(),
            self._steps(calls),
            self._run(),
        ]
        return "\n".join(part for part in parts if part)

    def _constants(self) -> Iterator[str]:
        for (offset, dtype, count), name in self.weights.items() if not self.weights_as_argument else ():
            kind = numpy_dtype(dtype)
            values = self.plan.weights[offset : offset + count * kind.itemsize].view(kind)
            yield f"static const {C_TYPE[dtype]} {name}[{count}] = {{\n{_rows(values, dtype)}}};\n"

    def _memory(self) -> str:
        kinds = {
            C_TYPE[parameter.dtype]: numpy_dtype(parameter.dtype).itemsize
            for step in self.plan.calls
            for place, parameter in zip(step.arguments, self.plan.modules[step.module].parameters, strict=True)
            if place.space == "arena"
        } or {"uint8_t": 1}
        room = max(self.plan.arena_bytes, 1)
        arena = "".join(f"    {kind} {_MEMBER[kind]}[{room // kinds[kind]}];\n" for kind in sorted(kinds))
        own = "".join(f"    {f.name}_workspace {f.name};\n" for f in self.sources if f.workspace)
        own = f"  union {{\n{own}  }} workspace; /* of the kernel that runs */\n" if own else ""
        return (
            f"typedef struct {{\n  union {{\n{arena}  }} arena; /* activations */\n{own}}} {self.plan.name}_memory;\n"
        )

    def _call(self, step: Step) -> str:
        module, function = self.plan.modules[step.module], self.sources[step.module]
        arguments = [
            self._pointer(place, parameter, parameter.name in module.outputs)
            for place, parameter in zip(step.arguments, module.parameters, strict=True)
        ]
        arguments += [f"&memory->workspace.{function.name}"] * bool(function.workspace)
        title = f"  /* {step.title.replace('*/', '* /')} */\n" if step.title else ""
        called = break_line(f"{function.name}({', '.join(arguments)});", "  ")
        return f"{title}{called}\n"

    def _pointer(self, ref: BufferRef, parameter: Parameter, written: bool) -> str:
        kind = C_TYPE[parameter.dtype]
        size = numpy_dtype(parameter.dtype).itemsize
        if ref.space == "weights":
            if self.weights_as_argument:
                return f"(const {kind} *)(const void *)&((const uint8_t *)weights)[{ref.number}]"
            key = (ref.number, parameter.dtype, prod(parameter.shape))
            return self.weights.setdefault(key, f"{self.plan.name}_weights{len(self.weights)}")
        if ref.space in ("input", "output"):
            names, kinds = (
                (self.inputs, self.plan.inputs) if ref.space == "input" else (self.outputs, self.plan.outputs)
            )
            at = f"&{names[ref.number]}[{ref.beyond // size}]" if ref.beyond else names[ref.number]
            same = C_TYPE[kinds[ref.number].dtype] == kind
            return at if same else f"({'' if written else 'const '}{kind} *)({at})"
        return f"&memory->arena.{_MEMBER[kind]}[{ref.number // size}]"

    def _steps(self, calls: list[str]) -> str:
        used = {(place.space, place.number) for step in self.plan.calls for place in step.arguments}
        unused = [n for i, n in enumerate(self.inputs) if ("input", i) not in used]
        unused += [n for i, n in enumerate(self.outputs) if ("output", i) not in used]
        unused += ["memory"] * (not any("memory->" in call for call in calls))
        unused += ["weights"] * (self.weights_as_argument and not any(space == "weights" for space, _ in used))
        head = f"static void {self.plan.name}_steps({', '.join([*self.arguments(), self._own()])})"
        lines = "".join(f"  (void){name};\n" for name in unused)
        return f"{head} {{\n{lines}{''.join(calls)}}}\n"

    def _own(self) -> str:
        return f"{self.plan.name}_memory *memory"

    def _run(self) -> str:
        name, names = self.plan.name, [*["weights"] * self.weights_as_argument, *self.inputs, *self.outputs]
        missing = " || ".join(f"({n} == NULL)" for n in names)
        return (
            f"int32_t {name}_run({', '.join(self.arguments())}) {{\n"
            f"  static {name}_memory memory;\n"
            f"  int32_t status = -1;\n"
            f"  if (!({missing})) {{\n"
            f"    {name}_steps({', '.join([*names, '&memory'])});\n"
            f"    status = 0;\n  }}\n  return status;\n}}\n"
        )

    # ------------------------------------------------------------------ for this package
    def library(self) -> str:
        """Writes the text of the shared library that `autotune.load` loads; its functions take arrays from a table."""
        name, plan = self.plan.name, self.plan
        kinds = [f"const {C_TYPE[p.dtype]} *" for p in plan.inputs] + [f"{C_TYPE[p.dtype]} *" for p in plan.outputs]
        names = [*self.inputs, *self.outputs]
        unpacked = "".join(
            f"  {kind}{n} = ({kind})arguments[{i}];\n" for i, (kind, n) in enumerate(zip(kinds, names, strict=True))
        )
        unpacked += f"  const void *weights = arguments[{len(names)}];\n" * self.weights_as_argument
        unpacked += f"  {name}_memory *memory = ({name}_memory *)workspace;\n  (void)threads;\n  (void)memory;\n"
        passed = ", ".join([*["weights"] * self.weights_as_argument, *names, "memory"])
        timed = "  ticks[0] = autotune_now();\n" + "".join(
            f"{self._call(step)}  ticks[{number}] = autotune_now();\n" for number, step in enumerate(plan.calls, 1)
        )
        whole = _write_visible(name, "", f"{unpacked}  {name}_steps({passed});\n")
        profile = _write_visible(f"{name}_profile", ", int64_t *ticks", unpacked + timed)
        return "\n".join((PREAMBLE, self.source(self.header()), TIMER, whole, profile))


def _write_visible(name: str, more: str, body: str) -> str:
    return f"AUTOTUNE_SHOWN void {name}(void *const *arguments, int32_t threads, void *workspace{more}) {{\n{body}}}\n"


def _rows(values: np.ndarray[Any, Any], dtype: str) -> str:
    """Writes the numbers of an array, a few on a line."""
    if dtype in HALVES:
        shown = [f"0x{int(bits):04X}U" for bits in values.view(np.uint16)]
    elif dtype == "float32":
        shown = [float_literal(float(value)) for value in values]
    else:
        suffix = "U" if C_TYPE[dtype] == "uint8_t" else ""
        shown = ["INT32_MIN" if value == -(2**31) else f"{int(value)}{suffix}" for value in values]
    lines = (", ".join(shown[at : at + _COLUMNS]) for at in range(0, len(shown), _COLUMNS))
    return "".join(f"  {line},\n" for line in lines)


def link(compiler: Compiler, plan: NetworkPlan, folder: Path) -> dict[str, Any]:
    """Writes `name`.c and `name`.h, and for this package `name`.so where there can be one; see `Target.link`."""
    text = NetworkText(plan)

    def write(folder: Path) -> list[str]:
        (folder / f"{plan.name}.c").write_text(text.source())
        (folder / f"{plan.name}.h").write_text(text.header())
        if not compiler.links:
            return [f"{plan.name}.c", f"{plan.name}.h"]
        (folder / f"{plan.name}.so").write_bytes(compiler.library(text.library()))
        return [f"{plan.name}.c", f"{plan.name}.h", f"{plan.name}.so"]

    workspace = max((module.metadata["shared_bytes"] for module in plan.modules), default=0)
    return {
        "kind": KIND,
        "machine": compiler.machine,
        "files": replace_files(folder, write),
        "memory": {"shared_bytes": workspace + 64, "scratch_bytes": 0},
    }
