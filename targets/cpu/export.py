"""Kernels as files: an object, a C header, and a shared object where a C compiler can link one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import llvmlite.binding as llvm

from search_space.files import replacing
from targets.arrays import C_TYPE
from targets.base import Module, Parameter
from targets.blas import SGEMM_SYMBOL, blas_library
from targets.cpu.runtime import Compiles, library_text
from targets.extents import extent_text

LINK_FLAGS = ("-shared", "-pthread")


def export(target: Compiles, module: Module, folder: Path, name: str) -> list[str]:
    """Writes `name`.o, `name`_runtime.o and `name`.h, and links `name`.so where the host has `cc`.

    The runtime object holds the parallel loop and its threads.

    Returns:
        Names of the files written.

    Raises:
        RuntimeError: the linker failed; its message is in the error.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    runtime = target.machine.emit_object(llvm.parse_assembly(target.header() + library_text(target.machine.triple)))
    objects = {f"{name}.o": module.object_code, f"{name}_runtime.o": runtime}
    for file, code in objects.items():
        (folder / file).write_bytes(code)
    (folder / f"{name}.h").write_text(header(module, name))
    return [*objects, f"{name}.h", *link_shared_object(target, [module], objects, folder, name)]


def link_shared_object(
    target: Compiles, modules: Iterable[Module], objects: Iterable[str], folder: Path, name: str
) -> list[str]:
    """Links objects of a folder to `name`.so; its name, or none where the host has no C compiler or is another machine.

    Raises:
        RuntimeError: the linker failed; its message is in the error.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or target.machine.triple != llvm.get_process_triple():
        return []
    # `fmaf` of libm stands for an instruction that old processors lack.
    command = [compiler, *LINK_FLAGS, *objects, "-lm"]
    blas = blas_library()
    if blas is not None and any(SGEMM_SYMBOL in module.llvm_ir for module in modules):
        command += [blas, f"-Wl,-rpath,{Path(blas).parent}"]
    with replacing(folder / f"{name}.so") as partial:
        command += ["-o", partial.name]
        done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", errors="replace", check=False)
        if done.returncode:
            raise RuntimeError(f"`{compiler}` must link {name}.so, but said: {done.stderr.strip()}")
    return [f"{name}.so"]


def header(module: Module, name: str) -> str:
    """Writes the C header: one typed function a kernel, one for each constant that is packed before the first call."""
    guard = f"AUTOTUNE_{name.upper()}_H"
    facts = module.metadata
    lines = [
        f"#ifndef {guard}",
        f"#define {guard}",
        "#include <stdint.h>",
        "",
        f"/* Bytes of 64-byte aligned memory {name}() needs when it runs on that many threads.",
        "   Calls at the same time need such memory and an output each. */",
        f"#define {name.upper()}_WORKSPACE_BYTES(threads) "
        f"({facts['shared_bytes']} + (threads) * {facts['scratch_bytes']} + 64)",
        "",
        f"void {module.name}(const void *const *arguments, int32_t threads, void *workspace);",
    ]
    for index, parameter in enumerate(p for p in module.parameters if p.packed_from):
        sources = [next(s for s in module.sources if s.name == name) for name in parameter.packed_from]
        symbol, shown = f"{module.name}_pack{index}", ", ".join(f"{s.name}{list(s.shape)}" for s in sources)
        lines += [
            f"void {symbol}(const void *const *arguments, int32_t threads, void *workspace);",
            "",
            f"/* Lays out {shown} as {parameter.name}{list(parameter.shape)}. */",
            f"static inline void {name}_pack_{'_'.join(_symbol(s.name) for s in sources)}("
            f"{', '.join(_argument(s) for s in sources)}, {_argument(parameter, True)}) {{",
            f"  const void *arguments[] = {{{', '.join(_symbol(p.name) for p in (*sources, parameter))}}};",
            f"  {symbol}(arguments, 1, 0);",
            "}",
        ]
    arguments = ", ".join(
        [*(_argument(p, p.name in module.outputs) for p in module.parameters)]
        + [f"int64_t {_symbol(size)}" for size in module.sizes]
    )
    shapes = ", ".join(f"{p.name}[{', '.join(map(extent_text, p.extents or p.shape))}]" for p in module.parameters)
    ranges = "".join(f", {size} from {low} to {high}" for size, (low, high) in module.sizes.items())
    words = [_symbol(p.name) for p in module.parameters]
    words += [f"(const void *)(intptr_t){_symbol(size)}" for size in module.sizes]
    lines += [
        "",
        f"/* {shapes}: dense, row-major{ranges}. */",
        f"static inline void {name}_run({arguments}, int32_t threads, void *workspace) {{",
        f"  const void *arguments[] = {{{', '.join(words)}}};",
        f"  {module.name}(arguments, threads, workspace);",
        "}",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _symbol(name: str) -> str:
    return name.replace(".", "_")


def _argument(parameter: Parameter, written: bool = False) -> str:
    return f"{'' if written else 'const '}{C_TYPE[parameter.dtype]} *{_symbol(parameter.name)}"
