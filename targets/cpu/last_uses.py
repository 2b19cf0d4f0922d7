"""Artificial last uses of the factors of multiply-adds, so that a sum stays in its register.

x86's multiply-add overwrites one of its three operands, and LLVM picks one that is not read again. If that is a factor,
the sum moves to another register. At the end of the loop all sums move back, over the stack if registers are few. After
a further use of the factor, by nothing that becomes an instruction, only the sum is left to overwrite.
"""

from __future__ import annotations

from targets.cpu.text import Text, Value

FAKE_USE = "llvm.fake.use"


class LastUses:
    """The factors of one function's multiply-adds.

    Args:
        text: text of the function.
        features: instruction sets of the machine. On other machines than x86 only the sum is overwritten.
    """

    def __init__(self, text: Text, features: frozenset[str]) -> None:
        self._text = text
        self._active = "avx" in features
        self._broadcasts_as_it_reads = "avx512f" in features
        self._uses: dict[Value, tuple[int, bool, list[str]]] = {}

    def of_product(self, factors: tuple[Value, Value], broadcast: tuple[bool, bool]) -> None:
        """Notes that the instruction emitted last multiplies two vectors; whether each is a scalar in every lane."""
        if not self._active:
            return
        # Which product is a factor's last is known at the end: a place behind each is kept open till then.
        behind: list[str] = []
        self._text.lines.append(behind)
        for factor, scalar in zip(factors, broadcast, strict=True):
            if factor.lanes and factor.text.startswith("%"):
                times = self._uses[factor][0] if factor in self._uses else 0
                self._uses[factor] = (times + 1, scalar, behind)

    def finish(self) -> frozenset[str]:
        """Writes the uses, and returns the declarations that they need.

        A vector that only one multiply-add reads is left as its memory operand. So is a scalar, if the machine
        broadcasts as it reads.
        """
        declared: set[str] = set()
        for factor, (times, scalar, behind) in self._uses.items():
            if times > 1 or (scalar and not self._broadcasts_as_it_reads):
                behind.append(f"  call void (...) @{FAKE_USE}({factor.type} {factor.text})")
                declared.add(f"declare void @{FAKE_USE}(...)")
        return frozenset(declared)
