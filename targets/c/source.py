"""The text of a module: its helpers, its functions, and the entry points for callers outside of C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from search_space.ir.stmt import LoopProgram
from search_space.lower.selected import select_iterations
from targets.base import Module
from targets.c.emit import FunctionText, emit_program
from targets.c.helpers import helper_text

INCLUDES = "#include <math.h>\n#include <stdint.h>\n#include <string.h>\n"
TIMER = """
static int64_t autotune_now(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + (int64_t)now.tv_nsec;
}

AUTOTUNE_SHOWN void autotune_time(autotune_kernel *autotune_run, void *const *const *tables, int64_t count,
                                  int64_t iterations, int32_t threads, void *workspace, int64_t *nanoseconds) {
  for (int64_t i = 0; i < iterations; ++i) {
    const int64_t start = autotune_now();
    autotune_run(tables[i % count], threads, workspace);
    nanoseconds[i] = autotune_now() - start;
  }
}
"""
PREAMBLE = """#define _POSIX_C_SOURCE 199309L
#include <stdint.h>
#include <time.h>
#define AUTOTUNE_SHOWN __attribute__((visibility("default")))
typedef void autotune_kernel(void *const *arguments, int32_t threads, void *workspace);
"""


@dataclass(frozen=True)
class Source:
    """A kernel as C: its function, and one for each constant that is packed."""

    functions: tuple[FunctionText, ...]

    @staticmethod
    def of(module: Module) -> Source:
        """Restores the text that a module was made from."""
        lists = ("arguments", "helpers")
        found = [{**f, **{key: tuple(f[key]) for key in lists}} for f in module.metadata["functions"]]
        return Source(tuple(FunctionText(**f) for f in found))

    def to_json(self) -> list[dict[str, Any]]:
        """Converts the source to plain data for a module, from which `of` restores it."""
        return [{key: list(v) if isinstance(v, tuple) else v for key, v in vars(f).items()} for f in self.functions]

    @property
    def workspace_bytes(self) -> int:
        """Bytes of workspace that suffice for any of the functions."""
        return max(function.workspace_bytes for function in self.functions)

    @property
    def workspaces(self) -> str:
        """Types of the functions' workspaces."""
        return "\n".join(function.workspace for function in self.functions if function.workspace)

    @property
    def body(self) -> str:
        """The functions with the helpers that they call."""
        helpers = {helper for function in self.functions for helper in function.helpers}
        return "\n".join(part for part in (helper_text(helpers), *(f.text for f in self.functions)) if part)

    @property
    def text(self) -> str:
        """All that a compiler needs."""
        return "\n".join(part for part in (INCLUDES, self.workspaces, self.body) if part)

    @property
    def library(self) -> str:
        """The text with functions for `targets.native`: entry points that take arrays from a table, and a timer."""
        return "\n".join((PREAMBLE, self.text, *map(_entry, self.functions), TIMER))


def make_source(program: LoopProgram, name: str) -> Source:
    """Writes the kernel `name` of a concrete program.

    Raises:
        BuildError: a statement or an expression that has no code in C.
    """
    packs = (emit_program(p, f"{name}_pack{number}", name) for number, p in enumerate(program.prologues))
    return Source((emit_program(select_iterations(program), name), *packs))


def _entry(function: FunctionText) -> str:
    """Writes a function that takes its arrays from a table."""
    kinds = [argument.partition("restrict")[0] for argument in function.arguments]
    arguments = [f"({kind})arguments[{number}]" for number, kind in enumerate(kinds)]
    if function.workspace:
        arguments[-1] = f"({kinds[-1]})workspace"
    return (
        f"AUTOTUNE_SHOWN void {function.name}_entry(void *const *arguments, int32_t threads, void *workspace) {{\n"
        f"  (void)threads;\n  (void)workspace;\n  {function.name}({', '.join(arguments)});\n}}\n"
    )
