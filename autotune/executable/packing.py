"""Constants of an executable's steps as their kernels take them, packed as soon as a kernel is known."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotune.graph.ir import Array, Graph
from autotune.graph.partition import Group
from search_space.dtypes import numpy_dtype
from targets.base import Module, Packer, Target


class Constants:
    """Packs constants with the packers of a target; those that are packed ahead wait for who asks for them.

    Args:
        target: of the kernels.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._packers: dict[str, Packer | None] = {}  # by the module's name
        self._made: dict[tuple[str, Group], Mapping[str, Array]] = {}

    def ahead(self, graph: Graph, group: Group, module: Module) -> None:
        """Packs what `of` will be asked for."""
        self._made[module.name, group] = self._packed(graph, group, module)

    def of(self, graph: Graph, group: Group, module: Module) -> Mapping[str, Array]:
        """Constants of a step by the parameter's name, if its kernel takes any that are packed when it is compiled.

        Args:
            graph: that has the constants.
            group: what the step computes.
            module: its kernel.
        """
        made = self._made.pop((module.name, group), None)
        return self._packed(graph, group, module) if made is None else made

    def _packed(self, graph: Graph, group: Group, module: Module) -> Mapping[str, Array]:
        if not any(p.constant or p.packed_from for p in module.parameters):
            return {}
        if module.name not in self._packers:
            self._packers[module.name] = self._target.packer(module)
        packer = self._packers[module.name]
        if packer is None:
            return {}
        arrays = [
            np.asarray(graph.constants[name])
            if name in graph.constants and not source.extents
            else np.zeros(source.shape, numpy_dtype(source.dtype))
            for source, name in zip(module.sources, group.inputs, strict=True)
        ]
        return packer(arrays)
