"""Built kernels as plain data, and the arrays that they take."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from targets.extents import Extent, describe_extent, extent_at, plain_extent

if TYPE_CHECKING:  # a process that only runs networks needs none
    from search_space.ir.stmt import Buffer, LoopProgram


@dataclass(frozen=True)
class Parameter:
    """One array a kernel takes: its shape and dtype; `packed_from` names the sources of a packed constant.

    Where sizes leave the shape open, `extents` has it as plain data (`targets.extents`), and `shape` is the largest.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    constant: bool = False
    packed_from: tuple[str, ...] = ()
    extents: tuple[Extent, ...] = ()

    def at(self, sizes: Mapping[str, int]) -> Parameter:
        """Returns the parameter at given sizes, with fixed extents."""
        if not self.extents:
            return self
        return replace(self, shape=tuple(extent_at(e, sizes) for e in self.extents), extents=())

    @property
    def description(self) -> str:
        """Name, element type and shape, as `image float32 (1, 3, 224, 224)`; open extents by their sizes."""
        extents = [describe_extent(extent) for extent in self.extents or self.shape]
        return f"{self.name} {self.dtype} ({', '.join(extents)}{',' * (len(extents) == 1)})"

    def plain(self) -> dict[str, Any]:
        """Converts the parameter to plain data by field, without an empty `extents`."""
        return {key: value for key, value in vars(self).items() if key != "extents" or value}


@dataclass(frozen=True)
class Module:
    """A built kernel as plain data, which can be sent to another process or machine.

    Attributes:
        sizes: least and greatest value of each open size, by name, in the order in which the kernel takes them behind
            its arrays.
    """

    name: str
    target: str
    object_code: bytes = field(repr=False)
    llvm_ir: str = field(repr=False)
    parameters: tuple[Parameter, ...]
    outputs: tuple[str, ...]
    sources: tuple[Parameter, ...]
    metadata: dict[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Encodes the module as the length of a JSON header, the header, and the object code."""
        header = json.dumps(
            {
                "name": self.name,
                "target": self.target,
                "llvm_ir": self.llvm_ir,
                "parameters": [p.plain() for p in self.parameters],
                "outputs": self.outputs,
                "sources": [p.plain() for p in self.sources],
                "metadata": self.metadata,
                **({"sizes": self.sizes} if self.sizes else {}),
            }
        ).encode()
        return struct.pack("<Q", len(header)) + header + self.object_code

    @staticmethod
    def of(
        program: LoopProgram, name: str, target: str, code: bytes, metadata: dict[str, Any], llvm_ir: str = ""
    ) -> Module:
        """Makes the module of a loop program's code, with the program's parameters, outputs and inputs."""
        packed = {p.outputs[0]: tuple(b.name for b in p.inputs) for p in program.prologues}
        parameters = tuple(_parameter(b, packed.get(b.name, ())) for b in program.params)
        sources = tuple(map(_parameter, program.inputs))
        return Module(name, target, code, llvm_ir, parameters, program.outputs, sources, metadata, dict(program.sizes))

    @staticmethod
    def from_bytes(data: bytes) -> Module:
        """Decodes a module that `to_bytes` encoded."""
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])

        def parameters(items: list[dict[str, Any]]) -> tuple[Parameter, ...]:
            lists = ("shape", "packed_from", "extents")
            return tuple(Parameter(**{**p, **{k: tuple(p.get(k, ())) for k in lists}}) for p in items)

        return Module(
            header["name"],
            header["target"],
            bytes(data[8 + length :]),
            header["llvm_ir"],
            parameters(header["parameters"]),
            tuple(header["outputs"]),
            parameters(header["sources"]),
            header["metadata"],
            {name: (low, high) for name, (low, high) in header.get("sizes", {}).items()},
        )


def _parameter(buffer: Buffer, packed_from: tuple[str, ...] = ()) -> Parameter:
    is_open = any(not extent.is_const for extent in buffer.shape)
    extents = tuple(map(plain_extent, buffer.shape)) if is_open else ()
    return Parameter(buffer.name, _largest(buffer), buffer.dtype, buffer.constant, packed_from, extents)


def _largest(buffer: Buffer) -> tuple[int, ...]:
    """Returns the greatest shape that the sizes allow."""
    from search_space.ir.sizes import span

    return tuple(span(extent)[1] for extent in buffer.shape)
