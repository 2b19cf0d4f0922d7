"""The text of a module: its helpers, its functions, and what calls them from outside of C."""

from __future__ import annotations

from dataclasses import dataclass

from search_space.ir.stmt import LoopProgram
from targets.arrays import C_TYPE
from targets.base import Module
from targets.c.emit import Emitted, emit_program
from targets.c.helpers import text_of

INCLUDES = "#include <math.h>\n#include <stdint.h>\n#include <string.h>\n"
TIMER = """
static int64_t autotune_now(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + (int64_t)now.tv_nsec;
}

AUTOTUNE_SHOWN void autotune_time(autotune_kernel *kernel, void *const *const *tables, int64_t count,
                                  int64_t iterations, int32_t threads, void *workspace, int64_t *nanoseconds) {
  for (int64_t i = 0; i < iterations; ++i) {
    const int64_t start = autotune_now();
    kernel(tables[i % count], threads, workspace);
    nanoseconds[i] = autotune_now() - start;
  }
}
"""
SHOWN = """#define _POSIX_C_SOURCE 199309L
#include <stdint.h>
#include <time.h>
#define AUTOTUNE_SHOWN __attribute__((visibility("default")))
typedef void autotune_kernel(void *const *arguments, int32_t threads, void *workspace);
"""


@dataclass(frozen=True)
class Source:
    """A kernel as C.

    Attributes:
        text: of its functions, those that pack constants included, without includes and helpers.
        helpers: that they call.
        workspace: name of the type of the kernel's workspace; empty where it needs none.
        workspace_bytes: that the workspace of any of them takes.
        entries: text of functions for `targets.native`, which no program in C has use for.
    """

    text: str
    helpers: tuple[str, ...]
    workspace: str
    workspace_bytes: int
    entries: str

    @staticmethod
    def of(module: Module) -> Source:
        """The text that a module was made of."""
        facts = module.metadata
        return Source(
            facts["source"], tuple(facts["helpers"]), facts["workspace"], facts["shared_bytes"], facts["entries"]
        )

    @property
    def whole(self) -> str:
        """All that a compiler needs."""
        return "\n".join(part for part in (INCLUDES, text_of(self.helpers), self.text) if part)

    @property
    def library(self) -> str:
        """The same with the entries and a loop that times them."""
        return "\n".join((SHOWN, self.whole, self.entries, TIMER))


def source_of(program: LoopProgram, name: str) -> Source:
    """The kernel `name` of a concrete program.

    Raises:
        BuildError: a statement or an expression that has no code in C.
    """
    made = [(emit_program(program, name), program)]
    made += [(emit_program(p, f"{name}_pack{number}"), p) for number, p in enumerate(program.prologues)]
    helpers = sorted(set().union(*(emitted.helpers for emitted, _ in made)))
    main = made[0][0]
    return Source(
        "\n".join(emitted.function for emitted, _ in made),
        tuple(helpers),
        main.workspace,
        max(emitted.workspace_bytes for emitted, _ in made),
        "\n".join(_entry(emitted, of) for emitted, of in made),
    )


def _entry(emitted: Emitted, program: LoopProgram) -> str:
    """A function that takes its arrays from a table."""
    arguments = [
        f"({'' if b.name in program.outputs else 'const '}{C_TYPE[b.dtype]} *)arguments[{i}]"
        for i, b in enumerate(program.params)
    ]
    given = ", ".join([*arguments, *([f"({emitted.workspace} *)workspace"] if emitted.workspace else [])])
    name = emitted.prototype.partition("(")[0].removeprefix("void ")
    return (
        f"AUTOTUNE_SHOWN void {name}_entry(void *const *arguments, int32_t threads, void *workspace) {{\n"
        f"  (void)threads;\n  (void)workspace;\n  {name}({given});\n}}\n"
    )
