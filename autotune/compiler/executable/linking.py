"""Kernels of a network, cached or built, and their linking, cached or anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.compiler.cache.kernels import KernelCache
from autotune.compiler.cache.linked import LinkResult, plan_digest
from autotune.schedule import KernelSpec, OpenKernel
from search_space.files import replace_file
from targets.base import Module, NetworkPlan, Target
from targets.manifest import contents

ModuleBuilder = Callable[[Sequence[KernelSpec | OpenKernel]], Iterable[Module]]
"""Function kernels → their modules in this order, each built when it is requested."""


class Linking:
    """Linker of one network's kernels.

    Args:
        kernels: kernels in the order in which they are linked.
        name: name of the network.
        target: target that links.
        cache: cache of kernels and linking results; None: everything is made.
        build: function that builds kernels that are not cached.

    Attributes:
        before: earlier linking result of the same kernels, from the cache, or None.
    """

    def __init__(
        self,
        kernels: Sequence[KernelSpec | OpenKernel],
        name: str,
        target: Target,
        cache: KernelCache | None,
        build: ModuleBuilder,
    ) -> None:
        self._kernels, self._name, self._target, self._cache, self._build = kernels, name, target, cache, build
        self._keys = [None if cache is None else cache.module_key(kernel, target) for kernel in kernels]
        self.before: LinkResult | None = None
        if cache is not None and None not in self._keys:
            self.before = cache.get_link_result(name, self._cache_keys)

    @property
    def _cache_keys(self) -> list[str]:
        return [key for key in self._keys if key is not None]

    def modules(self) -> Iterator[Module]:
        """Returns the modules of the kernels, without their code if they are linked already."""
        return self._build_modules() if self.before is None else iter(self.before.modules)

    def link(self, plan: NetworkPlan, folder: Path) -> Mapping[str, Any]:
        """Writes the target's files to `folder`, from the cache or linked anew; returns the facts of `Target.link`.

        With the same kernels, offsets of weights may still differ: constants that are equal in one model, and stored
        once, need not be equal in another.
        """
        cache, before = self._cache, self.before
        if cache is None or None in self._keys:
            return self._target.link(plan, folder)
        digest = plan_digest(plan, self._cache_keys)
        if before is not None and before.plan == digest:
            for file, data in before.files.items():
                replace_file(folder / file, data)
            return before.facts
        if before is not None:
            plan = replace(plan, modules=tuple(self._build_modules()))
        facts = self._target.link(plan, folder)
        files = {item["file"]: contents(folder / item["file"], item["sha256"]) for item in facts.get("files", ())}
        if f"{self._name}.so" in files:
            cache.keep_linked(self._name, self._cache_keys, LinkResult.of(digest, facts, files, plan.modules))
        return facts

    def _build_modules(self) -> Iterator[Module]:
        """Yields modules from the cache or built; the latter are put into the cache."""
        cache = self._cache
        cached = [None if cache is None or key is None else cache.module(key) for key in self._keys]
        missing = [kernel for kernel, module in zip(self._kernels, cached, strict=True) if module is None]
        building = iter(self._build(missing))
        for key, from_cache in zip(self._keys, cached, strict=True):
            module = next(building) if from_cache is None else from_cache
            if from_cache is None and cache is not None and key is not None:
                cache.keep_module(key, module)
            yield module
