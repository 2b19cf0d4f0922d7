"""Linked networks on a GPU: a cubin for each module, and every launch as plain data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from targets.arrays import round_up
from targets.base import BufferRef, BuildError, NetworkPlan, Target
from targets.cuda.executable import FORMAT


def link(target: Target, arch: str, plan: NetworkPlan, folder: Path) -> dict[str, Any]:
    """Writes the cubins of a network; see `Target.link`.

    The manifest has `launches`, for each step those of its kernels in order, and `packing`, launches that pack
    constants once. An argument is a place: a space, a number and bytes beyond it, as in `targets.base.BufferRef`.

    Raises:
        BuildError: an array that does not begin where kernels may read it in vectors.
    """
    modules = []
    for module in plan.modules:
        file = f"{module.name}.cubin"
        (folder / file).write_bytes(module.object_code)  # which nobody maps
        modules.append({"file": file, "sha256": hashlib.sha256(module.object_code).hexdigest()})
    packing, launches, workspace = [], [], 0
    for packing_step in plan.packings:
        module = plan.modules[packing_step.module]
        parameter = next(p for p in module.parameters if p.name == packing_step.name)
        packed = [p.name for p in module.parameters if p.packed_from]
        positions = {
            packing_step.name: packing_step.result,
            **dict(zip(parameter.packed_from, packing_step.sources, strict=True)),
        }
        prologue = module.metadata["prologues"][packed.index(packing_step.name)]
        packing += list(_launches(packing_step.module, prologue, positions, target))
        workspace = max(workspace, _workspace_bytes(prologue, target))
    for step in plan.calls:
        module = plan.modules[step.module]
        positions = dict(zip((p.name for p in module.parameters), step.arguments, strict=True))
        launches.append(list(_launches(step.module, module.metadata["launches"], positions, target)))
        workspace = max(workspace, _workspace_bytes(module.metadata["launches"], target))
    return {
        "kind": FORMAT.kind,
        "arch": arch,
        "modules": modules,
        "packing": packing,
        "launches": launches,
        "memory": {"packed_bytes": plan.packed_bytes, "workspace_bytes": workspace},
    }


def _launches(
    number: int, program: Mapping[str, Any], buffer_refs: Mapping[str, BufferRef], target: Target
) -> Iterator[dict[str, Any]]:
    """Lists the launches of a program whose buffers are at `buffer_refs`; all programs in turn use the same
    workspace."""
    known = {**buffer_refs, **_workspace(program, target)}
    for launch in program["kernels"]:
        arguments = [known[name] for name in launch["arguments"]]
        for argument in arguments:
            begin = argument.number * (argument.space not in ("input", "output")) + argument.beyond
            if begin % target.alignment:
                raise BuildError(
                    f"arrays of a kernel must begin at multiples of {target.alignment} bytes, but one of "
                    f"{launch['name']} begins {begin} bytes into {argument.space}"
                )
        yield {
            "module": number,
            "name": launch["name"],
            "grid": launch["grid"],
            "block": launch["block"],
            "dynamic_shared_bytes": launch["dynamic_shared_bytes"],
            "tensor_maps": launch["tensor_maps"],
            "arguments": [[argument.space, argument.number, argument.beyond] for argument in arguments],
        }


def _workspace(program: Mapping[str, Any], target: Target) -> dict[str, BufferRef]:
    """Places the buffers between the kernels of a program, one after another."""
    workspace, start = {}, 0
    for name, nbytes in program["workspace"]:
        workspace[name] = BufferRef("workspace", start)
        start += round_up(nbytes, target.spacing)
    return workspace


def _workspace_bytes(program: Mapping[str, Any], target: Target) -> int:
    return sum(round_up(nbytes, target.spacing) for _, nbytes in program["workspace"])
