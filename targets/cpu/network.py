"""Linked networks: one native function that calls every kernel in turn, linked into a shared object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from search_space.dtypes import NARROW
from targets.arrays import C_TYPE, round_up
from targets.base import NetworkPlan
from targets.cpu.driver import REPEAT_TICK, driver_text
from targets.cpu.export import link_shared_object
from targets.cpu.runtime import TIMER, Compiles, library_text
from targets.cstyle.spelling import HEADER_NAMES, Identifiers, identifier
from targets.extents import extent_text
from targets.network_library import KIND, replace_files

_CLOCK = TIMER[: TIMER.index("define void")]


def network_text(plan: NetworkPlan) -> str:
    """Writes the functions of a network and of its measurement as LLVM text.

    They are `void name(ptr arguments, i32 threads, ptr workspace)` and `void name_profile(.., ptr ticks)`.

    Arguments are the inputs, the outputs, the weights and the sizes. The workspace holds the arena, then the kernels'
    own workspace. The second function also writes the time in nanoseconds before the first step and after each. Steps
    of a loop count with all of their trips, one after the other.
    """
    declared = [f"declare void @{module.name}(ptr, i32, ptr)" for module in plan.modules]
    return "\n".join([*declared, _CLOCK, REPEAT_TICK, driver_text(plan, False), driver_text(plan, True), ""])


def shared_bytes(plan: NetworkPlan) -> int:
    """Returns the bytes of workspace that the threads of a kernel share, of the kernel that needs most."""
    return max((module.metadata["shared_bytes"] for module in plan.modules), default=0)


def scratch_bytes(plan: NetworkPlan) -> int:
    """Returns the bytes of workspace of each thread, of the kernel that needs most."""
    return max((module.metadata["scratch_bytes"] for module in plan.modules), default=0)


def link(target: Compiles, plan: NetworkPlan, folder: Path) -> dict[str, Any]:
    """Writes the objects of a network and its header, and links `name`.so where the host has `cc`; see `Target.link`.

    Raises:
        RuntimeError: the linker failed; its message is in the error.
    """
    return {
        "kind": KIND,
        "cpu": target.cpu,
        "files": replace_files(folder, lambda place: _write_objects(target, plan, place)),
        "memory": {"shared_bytes": shared_bytes(plan), "scratch_bytes": scratch_bytes(plan)},
    }


def _write_objects(target: Compiles, plan: NetworkPlan, folder: Path) -> list[str]:
    """Writes the header, and the shared object or, if it cannot be linked, the objects; returns the files' names."""
    main = target.machine.emit_object(llvm.parse_assembly(target.header() + network_text(plan)))
    runtime = target.machine.emit_object(llvm.parse_assembly(target.header() + library_text(target.machine.triple)))
    objects = {f"{plan.name}.o": main, f"{plan.name}_runtime.o": runtime}
    objects |= {f"{module.name}.o": module.object_code for module in plan.modules}
    for file, code in objects.items():
        (folder / file).write_bytes(code)
    (folder / f"{plan.name}.h").write_text(header(plan))
    library = link_shared_object(target, plan.modules, objects, folder, plan.name)
    return [f"{plan.name}.h", *library] if library else [*objects, f"{plan.name}.h"]


def header(plan: NetworkPlan) -> str:
    """Writes the C header: types and sizes, and functions that open a network, run it and close it."""
    name, upper = plan.name, plan.name.upper()
    symbols = _Symbols(plan)
    tensors = list(zip([*plan.inputs, *plan.outputs], [*symbols.inputs, *symbols.outputs], strict=True))
    shapes = ", ".join(f"{symbol}[{', '.join(map(extent_text, p.extents or p.shape))}]" for p, symbol in tensors)
    shapes += "".join(f"; {size} from {low} to {high}" for size, (low, high) in plan.sizes.items())
    arguments = [f"const {C_TYPE[p.dtype]} *{n}" for p, n in zip(plan.inputs, symbols.inputs, strict=True)]
    arguments += [f"{C_TYPE[p.dtype]} *{n}" for p, n in zip(plan.outputs, symbols.outputs, strict=True)]
    arguments += [f"int64_t {symbol}" for symbol in symbols.sizes]
    sizes = [f"(const void *)(intptr_t){symbol}" for symbol in symbols.sizes]
    passed = ", ".join([*symbols.inputs, *symbols.outputs, "network->weights", *sizes])
    behind = ", then the sizes as numbers of 64 bits" if sizes else ""
    narrow = ", ".join(f"{symbol} {p.dtype}" for p, symbol in tensors if p.dtype in NARROW)
    bits = f"\n   uint16_t holds the bits of 16-bit floats: {narrow}." if narrow else ""
    return f"""#ifndef AUTOTUNE_{upper}_H
#define AUTOTUNE_{upper}_H
/* {name}: {shapes}; dense, row-major. Link with {name}.so and -pthread.{bits}
   Threads may call {name}_infer on one network at the same time: each call has a workspace of its own, which later
   calls use again. With threads = 1 calls run side by side; with more they share one pool of threads, loop by loop. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define {upper}_WEIGHTS_BYTES {round_up(max(1, plan.weights_bytes), 64)}
#define {upper}_WORKSPACE_BYTES(threads) \\
  ((({plan.arena_bytes + shared_bytes(plan)} + (size_t)(threads) * {scratch_bytes(plan)} + 64) + 63) / 64 * 64)

#ifdef __cplusplus
extern "C" {{
#endif
/* One inference on inputs, outputs and weights, in this order{behind}. Calls at the same time need a workspace each. */
void {name}(const void *const *arguments, int32_t threads, void *workspace);
#ifdef __cplusplus
}}
#endif

typedef struct {{
  int32_t threads;
  void *weights;
  void *spare; /* workspaces that no call uses; each begins with the address of the next one */
  pthread_mutex_t lock;
}} {name}_network;

/* Frees what {name}_open and {name}_infer took; no call may be under way. Once is enough. */
static inline void {name}_close({name}_network *network) {{
  if (!network->weights && !network->spare) return;
  while (network->spare) {{
    void *workspace = network->spare;
    network->spare = *(void **)workspace;
    free(workspace);
  }}
  free(network->weights);
  network->weights = NULL;
  pthread_mutex_destroy(&network->lock);
}}

/* Reads the weights; 0, or -1 where the file is not {name}'s or memory is short. */
static inline int {name}_open({name}_network *network, const char *weights_file, int32_t threads) {{
  FILE *file = fopen(weights_file, "rb");
  network->threads = threads;
  network->weights = aligned_alloc(64, {upper}_WEIGHTS_BYTES);
  network->spare = aligned_alloc(64, {upper}_WORKSPACE_BYTES(threads));
  if (network->spare) *(void **)network->spare = NULL;
  pthread_mutex_init(&network->lock, NULL);
  size_t got = 0;
  if (file && network->weights && network->spare)
    got = fread(network->weights, 1, {plan.weights_bytes}, file);
  if (file) fclose(file);
  if (got == {plan.weights_bytes} && network->weights && network->spare) return 0;
  {name}_close(network);
  return -1;
}}

/* One inference; 0, or -1 where another call is under way and there is no memory for this one. */
static inline int {name}_infer({name}_network *network, {", ".join(arguments)}) {{
  const void *arguments[] = {{{passed}}};
  pthread_mutex_lock(&network->lock);
  void *workspace = network->spare;
  if (workspace) network->spare = *(void **)workspace;
  pthread_mutex_unlock(&network->lock);
  if (!workspace) workspace = aligned_alloc(64, {upper}_WORKSPACE_BYTES(network->threads));
  if (!workspace) return -1;
  {name}(arguments, network->threads, workspace);
  pthread_mutex_lock(&network->lock);
  *(void **)workspace = network->spare;
  network->spare = workspace;
  pthread_mutex_unlock(&network->lock);
  return 0;
}}
#endif
"""


class _Symbols:
    """Distinct identifiers of a call's arguments: names of a model may be keywords, or differ in signs only.

    Attributes:
        inputs, outputs, sizes: identifiers in the order of the plan.
    """

    def __init__(self, plan: NetworkPlan) -> None:
        names = Identifiers(
            *HEADER_NAMES.split(), plan.name, *(f"{plan.name}_{end}" for end in ("network", "open", "close"))
        )
        self.inputs, self.outputs, self.sizes = (
            [names.fresh(identifier(name)) for name in group]
            for group in ((p.name for p in plan.inputs), (p.name for p in plan.outputs), plan.sizes)
        )
