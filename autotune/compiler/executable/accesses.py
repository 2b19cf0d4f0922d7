"""Memory that the calls of a scope read and write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from autotune.compiler.executable.scopes import Scope
from search_space.dtypes import numpy_dtype

Updates = Mapping[str, str]
"""Input → name of the output that may lie in its memory."""


@dataclass(frozen=True)
class Span:
    """Bytes of a value in the memory of its root, from the first to the last.

    Attributes:
        root: value that owns the memory.
        first, end: first byte, and the one after the last.
    """

    root: str
    first: int
    end: int

    def overlaps(self, other: Span) -> bool:
        """Tells whether bytes of the same root are in both."""
        return self.root == other.root and self.first < other.end and other.first < self.end


class Accesses:
    """Memory that each call of a scope reads and writes, by the position of the call.

    Args:
        scope: scope of the calls.

    Attributes:
        reads: spans that each call reads, without those of constants.
        writes: span that each call writes.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        constants = scope.graph.constants
        self.reads = [[self.span(n) for n in dict.fromkeys(g.inputs) if n not in constants] for g in scope.groups]
        self.writes = [self.span(group.output) for group in scope.groups]

    def span(self, name: str) -> Span:
        """Returns the span of a value."""
        at, kind = self._scope.locations[name], self._scope.graph.type(name)
        size = numpy_dtype(kind.dtype).itemsize
        reach = kind.size
        if at.strides is not None:
            reach = 1 + sum((extent - 1) * stride for extent, stride in zip(kind.shape, at.strides, strict=True))
        return Span(at.root, at.offset * size, (at.offset + reach) * size)

    @cached_property
    def writers(self) -> dict[str, list[int]]:
        """Calls that write to the memory of each value which owns some."""
        writers: dict[str, list[int]] = defaultdict(list)
        for number, span in enumerate(self.writes):
            writers[span.root].append(number)
        return writers

    def sources(self, number: int) -> set[int]:
        """Lists the calls before a call that write what it reads."""
        return {
            writer
            for span in self.reads[number]
            for writer in self.writers.get(span.root, ())
            if writer < number and self.writes[writer].overlaps(span)
        }

    def late_readers(self, updates: Updates) -> Iterator[tuple[str, int, int]]:
        """Lists inputs with a call that writes new elements and one that reads the old ones."""
        outputs = dict(zip(self._scope.graph.output_names, self._scope.graph.outputs, strict=True))
        readers: dict[str, list[tuple[int, Span]]] = defaultdict(list)
        for number, spans in enumerate(self.reads):
            for span in spans:
                readers[span.root].append((number, span))
        for old, name in updates.items():
            new = self.span(outputs[name])
            for writer in self.writers.get(new.root, ()):
                written = self.writes[writer]
                in_old = Span(old, written.first - new.first, written.end - new.first)
                yield from ((old, writer, reader) for reader, span in readers[old] if span.overlaps(in_old))
