"""Kernels as files: the C source and its header."""

from __future__ import annotations

from pathlib import Path

from targets.base import Module
from targets.c.source import INCLUDES, Source


def wrap_in_guards(name: str, *parts: str) -> str:
    """Writes a header of parts between its guards, for C and C++."""
    guard = f"AUTOTUNE_{name.upper()}_H"
    text = "\n".join(part for part in parts if part)
    return f"#ifndef {guard}\n#define {guard}\n\n#include <stdint.h>\n\n{text}\n#endif\n"


def export(module: Module, folder: Path, name: str) -> list[str]:
    """Writes `name`.c and `name`.h; the files' names.

    A function that needs a workspace takes it from its caller; constants are packed by functions of their own.
    """
    source = Source.of(module)
    prototypes = "\n".join(f"{function.comment}\n{function.prototype};\n" for function in source.functions)
    (folder / f"{name}.h").write_text(wrap_in_guards(name, source.workspaces, prototypes))
    (folder / f"{name}.c").write_text(f'{INCLUDES}\n#include "{name}.h"\n\n{source.body}')
    return [f"{name}.c", f"{name}.h"]
