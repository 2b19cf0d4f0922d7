"""Index arithmetic as LLVM: polynomials over loop variables, each part computed in the outermost loop that can."""

from __future__ import annotations

from search_space.ir.expr import Expr, variables
from search_space.ir.polynomial import Monomial, Poly, poly
from search_space.ir.simplify import Simplifier
from search_space.ir.sizes import is_sized, span
from targets.base import BuildError
from targets.cpu.text import Scope, Text


class Integers:
    """An emitter of integer expressions; scalars as i64, conditions as i1.

    Attributes:
        extents: number of times that a loop was entered with another extent than before; conclusions hold for one
            number.
    """

    def __init__(self, text: Text) -> None:
        self.text = text
        self.ranges: dict[str, Expr] = {}
        self.simplify = Simplifier(self.ranges)
        self.extents = 0

    def run_over(self, variable: str, extent: Expr) -> None:
        """Enters a loop; conclusions under another extent of its variable are forgotten."""
        if (before := self.ranges.get(variable)) is not extent:
            self.extents += before is not None
            self.ranges[variable] = extent
            self.simplify.forget()

    def depth(self, e: Expr) -> int:
        """Returns the index of the innermost scope that defines a variable of `e`; 0 if it has none."""
        names = variables(e)
        for i in range(len(self.text.scopes) - 1, 0, -1):
            if names & self.text.scopes[i].variables.keys():
                return i
        return 0

    def scalar(self, e: Expr) -> str:
        """Returns the i64 text of `e`, emitted at the head of the scope of its deepest variable."""
        if e.op == "const":
            return str(int(e.value))
        if e.op == "var":
            return self._variable(e)
        key = ("int", e)
        text = self.text.lookup(key)
        if text is None:
            scope = self.text.scopes[self.depth(e)]
            text = self._emit(e, scope)
            scope.memo[key] = text
        return str(text)

    def _variable(self, e: Expr) -> str:
        for scope in reversed(self.text.scopes):
            if e.args[0] in scope.variables:
                return scope.variables[e.args[0]].text
        raise KeyError(f"loop variable {e} is not in scope")

    def _emit(self, e: Expr, at: Scope) -> str:
        if e.op in ("add", "sub", "mul"):
            return self.sum(poly(e), at)
        if e.op in ("floordiv", "mod"):
            return self._division(e, at)
        if e.op in ("min", "max"):
            a, b = (self.scalar(x) for x in e.args)
            return self.text.value(f"call i64 @llvm.s{e.op}.i64(i64 {a}, i64 {b})", "int64", at=at).text
        if e.op == "select":
            condition = self.condition(e.args[0])
            a, b = (self.scalar(x) for x in e.args[1:])
            return self.text.value(f"select i1 {condition}, i64 {a}, i64 {b}", "int64", at=at).text
        raise BuildError(f"an index must be arithmetic over loop variables, but got {e}")

    def _division(self, e: Expr, at: Scope) -> str:
        a, b = e.args
        x, y = self.scalar(a), self.scalar(b)
        if is_sized(b) and span(b)[0] < 1:
            # How often a loop runs, which may be not at all: the division of its index may stand before it then.
            y = self.text.value(f"call i64 @llvm.smax.i64(i64 {y}, i64 1)", "int64", at=at).text
        if self.simplify.nonnegative(a):
            kind = "udiv" if e.op == "floordiv" else "urem"
            return self.text.value(f"{kind} i64 {x}, {y}", "int64", at=at).text
        # LLVM's division rounds to zero, ours down; of a dividend that is not negative, above, both are the same.
        rest = self.text.value(f"srem i64 {x}, {y}", "int64", at=at).text
        negative = self.text.value(f"icmp slt i64 {rest}, 0", "bool", at=at).text
        if e.op == "mod":
            moved = self.text.value(f"add i64 {rest}, {y}", "int64", at=at).text
            return self.text.value(f"select i1 {negative}, i64 {moved}, i64 {rest}", "int64", at=at).text
        quotient = self.text.value(f"sdiv i64 {x}, {y}", "int64", at=at).text
        less = self.text.value(f"sext i1 {negative} to i64", "int64", at=at).text
        return self.text.value(f"add i64 {quotient}, {less}", "int64", at=at).text

    def sum(self, terms: Poly, at: Scope | None) -> str:
        """Emits a sum of coefficient * monomial."""
        out: str | None = None
        constant = terms.get((), 0)
        for monomial, coefficient in terms.items():
            if not monomial:
                continue
            term = self.monomial(monomial, at)
            if coefficient != 1:
                term = self.text.value(f"mul nsw i64 {term}, {coefficient}", "int64", at=at).text
            out = term if out is None else self.text.value(f"add nsw i64 {out}, {term}", "int64", at=at).text
        if out is None:
            return str(constant)
        if constant:
            out = self.text.value(f"add nsw i64 {out}, {constant}", "int64", at=at).text
        return out

    def monomial(self, monomial: Monomial, at: Scope | None) -> str:
        first, *others = monomial
        out = self.scalar(first)
        for atom in others:
            out = self.text.value(f"mul nsw i64 {out}, {self.scalar(atom)}", "int64", at=at).text
        return out

    def condition(self, e: Expr) -> str:
        """Returns the i1 text of a condition that is the same for all lanes."""
        if e.op == "const":
            return "true" if e.value else "false"
        key = ("condition", e)
        text = self.text.lookup(key)
        if text is None:
            scope = self.text.scopes[self.depth(e)]
            text = self._condition(e, scope)
            scope.memo[key] = text
        return str(text)

    def _condition(self, e: Expr, at: Scope) -> str:
        if e.op in ("and", "or"):
            a, b = (self.condition(x) for x in e.args)
            return self.text.value(f"{e.op} i1 {a}, {b}", "bool", at=at).text
        if e.op == "select":
            a, b, c = (self.condition(x) for x in e.args)
            return self.text.value(f"select i1 {a}, i1 {b}, i1 {c}", "bool", at=at).text
        if e.args[0].dtype == "bool":
            a, b = (self.condition(x) for x in e.args)
            name = {"eq": "icmp eq", "ne": "icmp ne", "min": "and", "max": "or"}[e.op]
            return self.text.value(f"{name} i1 {a}, {b}", "bool", at=at).text
        predicate = {"lt": "slt", "le": "sle", "eq": "eq", "ne": "ne"}[e.op]
        a, b = (self.scalar(x) for x in e.args)
        return self.text.value(f"icmp {predicate} i64 {a}, {b}", "bool", at=at).text
