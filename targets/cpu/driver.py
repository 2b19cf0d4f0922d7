"""The text of the function that calls a network's kernels in turn, loops of calls as loops, choices as branches.

A loop is one basic block: the addresses of a trip follow from its number, so that kernels are called as they are
elsewhere. In the function that measures, each call of a loop has one tick, which measures all trips. Calls of cases
that did not run take no time.

Sizes follow the arrays, and the arguments of kernels are computed from them before each call.
"""

from __future__ import annotations

from collections.abc import Sequence

from targets.base import BufferRef, Choice, Loop, NetworkPlan, Step
from targets.extents import Extent

REPEAT_TICK = """define internal void @repeat_tick(ptr %ticks, i64 %begin, i64 %end) {
entry:
  %before = sub i64 %begin, 1
  %before.at = getelementptr i64, ptr %ticks, i64 %before
  %tick = load i64, ptr %before.at
  br label %next
next:
  %number = phi i64 [ %begin, %entry ], [ %following, %next ]
  %at = getelementptr i64, ptr %ticks, i64 %number
  store i64 %tick, ptr %at
  %following = add i64 %number, 1
  %more = icmp ult i64 %following, %end
  br i1 %more, label %next, label %end.of.it
end.of.it:
  ret void
}"""
"""Function that copies the tick before `begin` to the ticks from `begin` to `end`, `end` excluded."""

_INSTRUCTIONS = {"add": "add nsw", "mul": "mul nsw"}
"""Instructions of the operators that an expression of sizes may have."""


def driver_text(plan: NetworkPlan, timed: bool) -> str:
    """Writes `void name(ptr arguments, i32 threads, ptr workspace)` or `void name_profile(.., ptr ticks)` in LLVM."""
    return _Driver(plan, timed).text()


class _Driver:
    def __init__(self, plan: NetworkPlan, timed: bool) -> None:
        self.plan, self.takes_times = plan, timed
        self.lines: list[str] = []
        self.block = "entry"
        self.ticks = 0
        self.calls = 0

    def text(self) -> str:
        plan = self.plan
        name, more = (f"{plan.name}_profile", ", ptr %ticks") if self.takes_times else (plan.name, "")
        most = max((len(step.arguments) + len(step.sizes) for step in plan.calls), default=1)
        self.lines = [
            f"define void @{name}(ptr %arguments, i32 %threads, ptr %workspace{more}) {{",
            "entry:",
            f"  %table = alloca [{most} x ptr], align 16",
            *["  %clock = alloca i64, align 8"] * (self.takes_times and any(isinstance(s, Loop) for s in plan.steps)),
            f"  %own = getelementptr i8, ptr %workspace, i64 {plan.arena_bytes}",
        ]
        roots = ["input"] * len(plan.inputs) + ["output"] * len(plan.outputs) + ["weights"]
        numbers = [*range(len(plan.inputs)), *range(len(plan.outputs)), 0]
        for place, (space, number) in enumerate(zip(roots, numbers, strict=True)):
            self.lines.append(f"  %{space}{number}.at = getelementptr ptr, ptr %arguments, i64 {place}")
            self.lines.append(f"  %{space}{number} = load ptr, ptr %{space}{number}.at")
        for number in range(len(plan.sizes)):
            self.lines.append(f"  %size{number}.at = getelementptr i64, ptr %arguments, i64 {len(roots) + number}")
            self.lines.append(f"  %size{number} = load i64, ptr %size{number}.at")
        if self.takes_times:
            self._tick()
        for number, step in enumerate(plan.steps):
            if isinstance(step, Loop):
                self._loop(step, f"loop{number}")
            elif isinstance(step, Choice):
                self._choice(step, f"choice{number}")
            else:
                self._call(step)
                if self.takes_times:
                    self._tick()
        return "\n".join([*self.lines, "  ret void", "}"])

    def _loop(self, loop: Loop, name: str) -> None:
        first = self.ticks
        if self.takes_times:
            for number in range(len(loop.steps)):
                self._store("0", first + number, f"{name}.zero{number}")
            self.lines += [
                f"  %{name}.before.at = getelementptr i64, ptr %ticks, i64 {first - 1}",
                f"  %{name}.before = load i64, ptr %{name}.before.at",
                f"  store i64 %{name}.before, ptr %clock",
            ]
        trip = f"%{name}.trip"
        self.lines += [
            f"  br label %{name}",
            f"{name}:",
            f"  {trip} = phi i64 [ 0, %{self.block} ], [ {trip}.next, %{name} ]",
            f"  {trip}.first = icmp eq i64 {trip}, 0",
        ]
        for number, step in enumerate(loop.steps):
            self._call(step, trip)
            if self.takes_times:
                self._lap(first + number, f"{name}.lap{number}")
        self.lines += [
            f"  {trip}.next = add i64 {trip}, 1",
            f"  {trip}.more = icmp ult i64 {trip}.next, {loop.trips}",
            f"  br i1 {trip}.more, label %{name}, label %{name}.end",
            f"{name}.end:",
        ]
        self.block = f"{name}.end"
        if self.takes_times:
            for number in range(len(loop.steps)):
                self._after(first + number, f"{name}.sum{number}")
            self.ticks = first + len(loop.steps)

    def _choice(self, choice: Choice, name: str) -> None:
        first, count = self.ticks, len(choice.steps)
        for number, case in enumerate(choice.cases):
            here, other = f"{name}.case{number}", f"{name}.case{number + 1}"
            if number + 1 < len(choice.cases):
                self.lines.append(f"  br i1 {self._within(case.spans, here)}, label %{here}, label %{other}.test")
            else:
                self.lines.append(f"  br label %{here}")
            self.lines.append(f"{here}:")
            self._skip_ticks(first, self.ticks)
            for step in case.steps:
                self._call(step)
                if self.takes_times:
                    self._tick()
            self._skip_ticks(self.ticks, first + count)
            self.lines.append(f"  br label %{name}.end")
            if number + 1 < len(choice.cases):
                self.lines.append(f"{other}.test:")
        self.lines.append(f"{name}.end:")
        self.block = f"{name}.end"

    def _within(self, spans: Sequence[tuple[int, int]], name: str) -> str:
        """Tests whether all sizes are within their ranges."""
        condition = "true"
        for number, (low, high) in enumerate(spans):
            for what, bound in (("sge", low), ("sle", high)):
                test = f"%{name}.{what}{number}"
                self.lines.append(f"  {test}.it = icmp {what} i64 %size{number}, {bound}")
                self.lines.append(f"  {test} = and i1 {condition}, {test}.it")
                condition = test
        return condition

    def _call(self, step: Step, trip: str = "") -> None:
        name = f"%s{self.calls}"
        self.calls += 1
        for slot, argument in enumerate(step.arguments):
            pointer = self._pointer(argument, f"{name}.{slot}", trip)
            self.lines.append(f"  {name}.{slot}.to = getelementptr ptr, ptr %table, i64 {slot}")
            self.lines.append(f"  store ptr {pointer}, ptr {name}.{slot}.to")
        for slot, extent in enumerate(step.sizes, len(step.arguments)):
            self.lines.append(f"  {name}.{slot}.to = getelementptr i64, ptr %table, i64 {slot}")
            self.lines.append(f"  store i64 {self._number(extent, f'{name}.{slot}')}, ptr {name}.{slot}.to")
        module = self.plan.modules[step.module].name
        self.lines.append(f"  call void @{module}(ptr %table, i32 %threads, ptr %own)")

    def _number(self, extent: Extent, name: str) -> str:
        """Computes an expression of sizes."""
        if not isinstance(extent, list):
            return f"%size{list(self.plan.sizes).index(extent)}" if isinstance(extent, str) else str(extent)
        operator, *operands = extent
        left, right = (self._number(operand, f"{name}.{place}") for place, operand in enumerate(operands))
        self.lines.append(f"  {name} = {_INSTRUCTIONS[operator]} i64 {left}, {right}")
        return name

    def _pointer(self, ref: BufferRef, name: str, trip: str) -> str:
        if ref.space in ("input", "output"):
            base, offset = f"%{ref.space}{ref.number}", ref.beyond
        else:
            base, offset = ("%weights0" if ref.space == "weights" else "%workspace"), ref.number
        self.lines.append(f"  {name} = getelementptr i8, ptr {base}, i64 {offset}")
        if ref.advance:
            turn = trip
            if ref.period:
                turn = f"{name}.turn"
                self.lines.append(f"  {turn} = urem i64 {trip}, {ref.period}")
            self.lines.append(f"  {name}.moved = mul i64 {turn}, {ref.advance}")
            self.lines.append(f"  {name}.now = getelementptr i8, ptr {name}, i64 {name}.moved")
            name = f"{name}.now"
        if ref.first is not None:
            first = self._pointer(ref.first, f"{name}.begin", trip)
            self.lines.append(f"  {name}.chosen = select i1 {trip}.first, ptr {first}, ptr {name}")
            name = f"{name}.chosen"
        return name

    # ------------------------------------------------------------------ times
    def _tick(self) -> None:
        """Stores the current time as the next tick."""
        self.lines.append(f"  %tick{self.ticks} = call i64 @now()")
        self._store(f"%tick{self.ticks}", self.ticks, f"tick{self.ticks}.to")
        self.ticks += 1

    def _skip_ticks(self, begin: int, end: int) -> None:
        """Sets the ticks of calls that did not run to the one before them."""
        if self.takes_times and begin < end:
            self.lines.append(f"  call void @repeat_tick(ptr %ticks, i64 {begin}, i64 {end})")

    def _lap(self, number: int, name: str) -> None:
        """Adds up the time since the last call of a loop."""
        self.lines += [
            f"  %{name} = call i64 @now()",
            f"  %{name}.last = load i64, ptr %clock",
            f"  store i64 %{name}, ptr %clock",
            f"  %{name}.took = sub i64 %{name}, %{name}.last",
        ]
        self._add(number, f"%{name}.took", name)

    def _after(self, number: int, name: str) -> None:
        """Turns a sum of times into a tick: the tick before plus the sum."""
        self.lines.append(f"  %{name}.last.at = getelementptr i64, ptr %ticks, i64 {number - 1}")
        self.lines.append(f"  %{name}.last = load i64, ptr %{name}.last.at")
        self._add(number, f"%{name}.last", name)

    def _add(self, number: int, value: str, name: str) -> None:
        self.lines += [
            f"  %{name}.at = getelementptr i64, ptr %ticks, i64 {number}",
            f"  %{name}.old = load i64, ptr %{name}.at",
            f"  %{name}.new = add i64 %{name}.old, {value}",
            f"  store i64 %{name}.new, ptr %{name}.at",
        ]

    def _store(self, value: str, number: int, name: str) -> None:
        self.lines.append(f"  %{name} = getelementptr i64, ptr %ticks, i64 {number}")
        self.lines.append(f"  store i64 {value}, ptr %{name}")
