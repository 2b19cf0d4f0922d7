"""Linking result of a network's kernels, as an entry of the cache."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from targets.base import Module, NetworkPlan
from targets.manifest import digest


@dataclass(frozen=True)
class LinkResult:
    """A network's linked files, and its kernels without their code, which the files contain.

    Attributes:
        plan: digest of the linked plan, see `plan_digest`.
        facts: facts that `Target.link` returned.
        files: contents by name.
        modules: modules of the kernels.
    """

    plan: str
    facts: Mapping[str, Any]
    files: Mapping[str, bytes]
    modules: tuple[Module, ...]

    @staticmethod
    def of(plan: str, facts: Mapping[str, Any], files: Mapping[str, bytes], modules: Sequence[Module]) -> LinkResult:
        """Makes an entry of the modules that were linked."""
        return LinkResult(plan, facts, files, tuple(replace(m, object_code=b"", llvm_ir="") for m in modules))

    def to_bytes(self) -> bytes:
        """Serialises the entry: a JSON header, its length in front, then files and modules."""
        parts = [*self.files.values(), *(module.to_bytes() for module in self.modules)]
        facts = {"plan": self.plan, "facts": self.facts, "files": list(self.files), "sizes": list(map(len, parts))}
        header = json.dumps(facts).encode()
        return b"".join([struct.pack("<Q", len(header)), header, *parts])

    @staticmethod
    def from_bytes(data: bytes) -> LinkResult:
        """Reads the entry that `to_bytes` wrote."""
        (length,) = struct.unpack_from("<Q", data)
        facts = json.loads(data[8 : 8 + length])
        ends = accumulate(facts["sizes"], initial=8 + length)
        parts = [data[start:end] for start, end in pairwise(ends)]
        files = dict(zip(facts["files"], parts, strict=False))
        modules = tuple(map(Module.from_bytes, parts[len(files) :]))
        return LinkResult(facts["plan"], facts["facts"], files, modules)


def plan_digest(plan: NetworkPlan, kernels: Sequence[str]) -> str:
    """Computes the digest of all that linking depends on; `kernels` are keys of the modules, in order."""
    facts = [getattr(plan, name) for name in ("name", "steps", "inputs", "outputs", "packings", "sizes")]
    numbers = [plan.weights_bytes, plan.arena_bytes, plan.packed_bytes]
    return digest(repr([list(kernels), facts, numbers]).encode())
