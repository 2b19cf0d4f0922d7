"""LLVM text with scopes: a value is emitted where its deepest loop variable lives, once, and seen from there inward."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

LLVM_TYPE = {
    "float32": "float",
    "float16": "half",
    "bfloat16": "i16",  # LLVM aborts on stores and selects of some vectors of bfloat
    "int8": "i8",
    "uint8": "i8",
    "int32": "i32",
    "int64": "i64",
    "bool": "i8",
}


@dataclass(frozen=True)
class Value:
    """An SSA value or literal: its text, dtype (`bool` is i1 here), and lanes (0: a scalar)."""

    text: str
    dtype: str
    lanes: int = 0

    @property
    def type(self) -> str:
        """The LLVM type in registers."""
        return llvm_type(self.dtype, self.lanes)


def llvm_type(dtype: str, lanes: int = 0) -> str:
    """Returns the LLVM type of a value in a register."""
    element = "i1" if dtype == "bool" else LLVM_TYPE[dtype]
    return f"<{lanes} x {element}>" if lanes else element


def float_literal(value: float, dtype: str) -> str:
    """Writes a floating-point constant as LLVM does: the bits of the double that holds it, exactly."""
    if dtype == "float32":
        value = struct.unpack("f", struct.pack("f", value))[0]
    if dtype == "float16":
        return "0xH" + struct.pack(">e", value).hex().upper()
    if dtype == "bfloat16":
        import ml_dtypes
        import numpy as np

        return str(int(np.asarray(value, ml_dtypes.bfloat16).view(np.int16)))
    return "0x" + struct.pack(">d", value).hex().upper()


@dataclass
class Induction:
    """The state of a counted loop from 0 that iterations pass on.

    Attributes:
        variable: variable of the loop.
        before, latch: labels of the blocks that lead into the body.
        phis, steps: lines at the head of the body, and of the latch.
        pointers: number of pointers that are carried.
    """

    variable: str
    before: str
    latch: str
    phis: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    pointers: int = 0


@dataclass
class Scope:
    """A region of straight-line dominance: the body of a loop, or of a branch."""

    head: list[Any] = field(default_factory=list)
    memo: dict[Any, Any] = field(default_factory=dict)
    variables: dict[str, Value] = field(default_factory=dict)
    induction: Induction | None = None


class Text:
    """A function being written: nested lists of lines, flattened at the end."""

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.scopes: list[Scope] = []
        self.label = "entry"
        self._count = 0

    def name(self, hint: str = "v") -> str:
        self._count += 1
        return f"%{hint}{self._count}"

    def emit(self, line: str) -> None:
        self.lines.append(line)

    def value(self, instruction: str, dtype: str, lanes: int = 0, at: Scope | None = None) -> Value:
        """Defines a new value by `instruction`, here or at the head of a scope further out."""
        name = self.name()
        (self.lines if at is None else at.head).append(f"  {name} = {instruction}")
        return Value(name, dtype, lanes)

    def splat(self, x: Value, lanes: int) -> Value:
        """Broadcasts `x` to every lane; a vector stays as it is."""
        if x.lanes or not lanes:
            return x
        # A literal is an operand as it is; of others the vector is kept, as most are used again.
        if not x.text.startswith("%"):
            return Value(f"splat ({x.type} {x.text})", x.dtype, lanes)
        key = ("splat", x.text, lanes)
        vector: Value | None = self.lookup(key)
        if vector is None:
            kind = llvm_type(x.dtype, lanes)
            one = self.value(f"insertelement {kind} poison, {x.type} {x.text}, i32 0", x.dtype, lanes)
            line = f"shufflevector {kind} {one.text}, {kind} poison, <{lanes} x i32> zeroinitializer"
            vector = self.value(line, x.dtype, lanes)
            self.remember(key, vector)
        return vector

    def start_block(self, label: str) -> None:
        self.emit(f"{label}:")
        self.label = label

    def push(self) -> Scope:
        scope = Scope()
        self.scopes.append(scope)
        self.lines.append(scope.head)
        return scope

    def pop(self) -> None:
        self.scopes.pop()

    def lookup(self, key: Any) -> Any:
        # What an enclosing scope has computed is computed before all that is in this one.
        for scope in reversed(self.scopes):
            if key in scope.memo:
                return scope.memo[key]
        return None

    def remember(self, key: Any, value: Any) -> Any:
        self.scopes[-1].memo[key] = value
        return value

    def flat(self) -> list[str]:
        out: list[str] = []

        def go(items: list[Any]) -> None:
            for item in items:
                if isinstance(item, list):
                    go(item)
                else:
                    out.append(item)

        go(self.lines)
        return out
