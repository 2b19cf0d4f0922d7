"""Loads and stores of scalars and vectors, whole, masked, gathered and scattered, in the types memory holds."""

from __future__ import annotations

from search_space.ir.expr import dtype_bytes
from targets.cpu.runtime import ZEROS_BYTES
from targets.cpu.text import LLVM_TYPE, Text, Value

FIRST_CACHE, SECOND_CACHE = 3, 2
"""LLVM's degrees of locality: a prefetched line goes to the first cache, or no nearer than to the second."""
_SUFFIX = {"float": "f32", "half": "f16"}


class Memory:
    """An emitter of memory operations; `declarations` collects the intrinsics they need."""

    def __init__(self, text: Text, declarations: set[str]) -> None:
        self.text, self.declarations = text, declarations

    def type(self, dtype: str, lanes: int) -> str:
        """Returns the LLVM type of a value of `dtype` in memory."""
        element = LLVM_TYPE[dtype]
        return f"<{lanes} x {element}>" if lanes else element

    def load(self, pointer: str, dtype: str, lanes: int, mask: Value | None = None) -> Value:
        """Loads the value at `pointer`, zero where the mask is off; reads nothing if it is off in all lanes."""
        kind, align = self.type(dtype, lanes), dtype_bytes(dtype)
        # One condition for all lanes takes no masked load: an address of zeros is chosen where it fails.
        if mask is not None and lanes and (mask.lanes or lanes * align > ZEROS_BYTES):
            name = f"llvm.masked.load.{self._suffix(dtype, lanes)}.p0"
            self.declarations.add(f"declare {kind} @{name}(ptr, <{lanes} x i1>, {kind})")
            bits = self.bits(mask, lanes)
            line = f"call {kind} @{name}(ptr align {align} {pointer}, {bits}, {kind} zeroinitializer)"
        else:
            safe = pointer if mask is None else self._safe(pointer, mask)
            line = f"load {kind}, ptr {safe}, align {align}"
        return self._to_register(line, dtype, lanes)

    def prefetch(self, pointer: str, distance: int, near: int) -> None:
        """Asks for the cache line `distance` bytes after `pointer`; there need not be anything there.

        Args:
            near: `FIRST_CACHE` or `SECOND_CACHE`, the nearest cache that the line goes to.
        """
        self.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        if distance:
            pointer = self.text.value(f"getelementptr i8, ptr {pointer}, i64 {distance}", "ptr").text
        self.text.emit(f"  call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 {near}, i32 1)")

    def prefetch_to_write(self, pointer: str) -> None:
        """Asks for the cache line at `pointer`, which will be written; there need not be anything there."""
        self.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.text.emit(f"  call void @llvm.prefetch.p0(ptr {pointer}, i32 1, i32 3, i32 1)")

    def gather(self, pointers: str, dtype: str, lanes: int, mask: Value | None) -> Value:
        """Loads the elements at a vector of pointers, zero where the mask is off."""
        kind = self.type(dtype, lanes)
        name = f"llvm.masked.gather.{self._suffix(dtype, lanes)}.v{lanes}p0"
        self.declarations.add(f"declare {kind} @{name}(<{lanes} x ptr>, <{lanes} x i1>, {kind})")
        where = f"<{lanes} x ptr> align {dtype_bytes(dtype)} {pointers}, {self.bits(mask, lanes)}"
        return self._to_register(f"call {kind} @{name}({where}, {kind} zeroinitializer)", dtype, lanes)

    def store(self, value: Value, pointer: str, mask: Value | None = None) -> None:
        """Writes a scalar or vector, of a vector the lanes where the mask is on."""
        kind, align = self.type(value.dtype, value.lanes), dtype_bytes(value.dtype)
        stored = self._from_register(value, kind)
        if mask is None:
            self.text.emit(f"  store {kind} {stored}, ptr {pointer}, align {align}")
            return
        name = f"llvm.masked.store.{self._suffix(value.dtype, value.lanes)}.p0"
        self.declarations.add(f"declare void @{name}({kind}, ptr, <{value.lanes} x i1>)")
        where = f"ptr align {align} {pointer}, {self.bits(mask, value.lanes)}"
        self.text.emit(f"  call void @{name}({kind} {stored}, {where})")

    def scatter(self, value: Value, pointers: str, mask: Value | None) -> None:
        """Writes the lanes of a vector to single addresses."""
        kind = self.type(value.dtype, value.lanes)
        name = f"llvm.masked.scatter.{self._suffix(value.dtype, value.lanes)}.v{value.lanes}p0"
        self.declarations.add(f"declare void @{name}({kind}, <{value.lanes} x ptr>, <{value.lanes} x i1>)")
        stored = self._from_register(value, kind)
        where = f"<{value.lanes} x ptr> align {dtype_bytes(value.dtype)} {pointers}"
        self.text.emit(f"  call void @{name}({kind} {stored}, {where}, {self.bits(mask, value.lanes)})")

    def bits(self, mask: Value | None, lanes: int) -> str:
        """Formats a mask as an operand, one bit a lane."""
        if mask is None:
            return f"<{lanes} x i1> splat (i1 true)"
        return f"<{lanes} x i1> {self.text.splat(mask, lanes).text}"

    def _safe(self, pointer: str, mask: Value) -> str:
        """Returns the pointer, or one to zeros where the mask is off (in every lane)."""
        condition = mask.text
        if mask.lanes:
            name = f"llvm.vector.reduce.or.v{mask.lanes}i1"
            self.declarations.add(f"declare i1 @{name}(<{mask.lanes} x i1>)")
            condition = self.text.value(f"call i1 @{name}({mask.type} {condition})", "bool").text
        return self.text.value(f"select i1 {condition}, ptr {pointer}, ptr @zeros", "ptr").text

    def _to_register(self, line: str, dtype: str, lanes: int) -> Value:
        loaded = self.text.value(line, dtype, lanes)
        kind = self.type(dtype, lanes)
        if dtype == "bool":
            return self.text.value(f"icmp ne {kind} {loaded.text}, {'zeroinitializer' if lanes else 0}", dtype, lanes)
        return loaded

    def _from_register(self, value: Value, kind: str) -> str:
        if value.dtype != "bool":
            return value.text
        return self.text.value(f"zext {value.type} {value.text} to {kind}", value.dtype, value.lanes).text

    def _suffix(self, dtype: str, lanes: int) -> str:
        element = LLVM_TYPE[dtype]
        return f"v{lanes}{_SUFFIX.get(element, element)}"
