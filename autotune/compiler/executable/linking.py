"""Kernels of a network, of the cache or built, and what they are linked to, as before or anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.compiler.cache.kernels import KernelCache
from autotune.compiler.cache.linked import Linked, plan_digest
from autotune.schedule import Kernel, OpenKernel
from search_space.files import replace_file
from targets.base import Module, NetworkPlan, Target
from targets.manifest import contents

Builder = Callable[[Sequence[Kernel | OpenKernel]], Iterable[Module]]
"""Kernels → their modules in this order, each when it is asked for."""


class Linking:
    """Kernels of one network.

    Args:
        kernels: in the order in which they are linked.
        name: of the network.
        target: that links.
        cache: of kernels, and of what they were linked to; None: everything is made.
        build: makes those that are not known.

    Attributes:
        before: what the kernels were linked to before; None where they were not.
    """

    def __init__(
        self,
        kernels: Sequence[Kernel | OpenKernel],
        name: str,
        target: Target,
        cache: KernelCache | None,
        build: Builder,
    ) -> None:
        self._kernels, self._name, self._target, self._cache, self._build = kernels, name, target, cache, build
        self._keys = [None if cache is None else cache.module_key(kernel, target) for kernel in kernels]
        self.before: Linked | None = None
        if cache is not None and None not in self._keys:
            self.before = cache.linked(name, self._known)

    @property
    def _known(self) -> list[str]:
        return [key for key in self._keys if key is not None]

    def modules(self) -> Iterator[Module]:
        """Modules of the kernels, without their code where they are linked already."""
        return self._built() if self.before is None else iter(self.before.modules)

    def link(self, plan: NetworkPlan, folder: Path) -> Mapping[str, Any]:
        """Writes to `folder` what the target links, as it was linked before or anew; what `Target.link` says of it.

        Kernels are the same and where weights lie may differ: of one model values are equal that are not of another.
        """
        cache, before = self._cache, self.before
        if cache is None or None in self._keys:
            return self._target.link(plan, folder)
        found = plan_digest(plan, self._known)
        if before is not None and before.plan == found:
            for file, data in before.files.items():
                replace_file(folder / file, data)
            return before.facts
        if before is not None:
            plan = replace(plan, modules=tuple(self._built()))
        facts = self._target.link(plan, folder)
        files = {item["file"]: contents(folder / item["file"], item["sha256"]) for item in facts.get("files", ())}
        if f"{self._name}.so" in files:
            cache.keep_linked(self._name, self._known, Linked.of(found, facts, files, plan.modules))
        return facts

    def _built(self) -> Iterator[Module]:
        """Modules of the cache or built; these are kept there."""
        cache = self._cache
        found = [None if cache is None or key is None else cache.module(key) for key in self._keys]
        missing = [kernel for kernel, module in zip(self._kernels, found, strict=True) if module is None]
        building = iter(self._build(missing))
        for key, known in zip(self._keys, found, strict=True):
            module = next(building) if known is None else known
            if known is None and cache is not None and key is not None:
                cache.keep_module(key, module)
            yield module
