"""The timing simulator's event loop as LLVM: fetch, three modules with queues and tokens, one memory port.

Everything happens in the order of time; at the same time fetch comes first, then load, compute and store. An
instruction starts when its module is free, it has been fetched, and its tokens are there. It then takes `work` cycles,
after that its rows: each waits `gap` cycles, then for the port, which it occupies for `busy` cycles. Tokens are given
at its end. The port serves rows in the order in which they ask.
"""

from __future__ import annotations

from llvmlite import ir

from targets.vta.native import I1, Code, Value, i64, new_module
from targets.vta.semantics import POPS, PUSHES

ENTRY = "vta_time"
NEVER = 1 << 62  # a cycle beyond the end of every stream
FLAGS = ("pop_prev", "pop_next", "push_prev", "push_next")
IDLE, RUNNING = 0, 1
WORK, ROWS, GAP, BUSY = range(4)  # columns of costs


def timing_module() -> ir.Module:
    """Builds a module with `vta_time`.

    The signature is `vta_time(n, modules, flags, costs, next, first, settings, start, end, state)`. `flags` (n, 4) are
    in the order of `FLAGS`, `costs` is (n, 4). `next` is the next instruction of the same module or n, `first` the
    first one of each module. `settings` are fetch latency, fetch interval, queue depth and token limit. Writes when
    instructions start and end. Returns the number of ended instructions; `state` then holds the instruction each module
    is at.
    """
    module = new_module("vta_timing")
    names = "n modules* flags* costs* next* first* settings* start* end* state*"
    _Timing(Code(module, ENTRY, names)).run()
    return module


class _Timing:
    """The state of the machine while time passes."""

    def __init__(self, code: Code) -> None:
        c = self.c = code
        self.head = [c.variable(c.take(c["first"], i64(m))) for m in range(3)]  # instruction a module is at
        self.status = [c.variable(i64(IDLE)) for _ in range(3)]
        self.time = [c.variable(i64(0)) for _ in range(3)]  # when it is free, or when its next event happens
        self.rows = [c.variable(i64(0)) for _ in range(3)]  # still to be transferred
        self.queue_lengths = [c.variable(i64(0)) for _ in range(3)]
        self.tokens = [c.variable(i64(0)) for _ in range(4)]
        self.port = c.variable(i64(0))
        self.now = c.variable(i64(0))
        self.fetch_count = c.variable(i64(0))
        self.fetch_time = c.variable(c.take(c["settings"], i64(0)))
        self.end_time = c.variable(i64(0))
        self.interval, self.depth, self.limit = (c.take(c["settings"], i64(number)) for number in (1, 2, 3))

    def run(self) -> None:
        """Emits the loop over events, until no event is left."""
        c, b = self.c, self.c.build
        going = c.variable(ir.Constant(I1, 1))
        with c.while_(lambda: c.get(going, I1)):
            times = [self.fetch_at(), *(self.module_at(m) for m in range(3))]
            first, chosen = times[0], i64(0)
            for number, time in enumerate(times[1:], 1):
                earlier = c.is_(time, "<", first)
                first, chosen = b.select(earlier, time, first), b.select(earlier, i64(number), chosen)
            some = c.is_(first, "<", i64(NEVER))
            c.set(going, some)
            with c.when(some):
                c.set(self.now, first)
                bodies = {0: self.fetch} | {m + 1: (lambda m=m: self.step(m)) for m in range(3)}
                c.cases(chosen, bodies)
        for m in range(3):
            c.put(c["state"], i64(m), c.get(self.head[m]))
        c.finish(c.get(self.end_time))

    def either(self, choices: list[Value], index: Value) -> Value:
        """Returns the variable's value that a module's number chooses."""
        c = self.c
        value = c.get(choices[0])
        for number, place in enumerate(choices[1:], 1):
            value = c.build.select(c.is_(index, "==", i64(number)), c.get(place), value)
        return value

    def fetch_at(self) -> Value:
        """Computes the time at which the next instruction can enter its queue."""
        c, b = self.c, self.c.build
        index = c.get(self.fetch_count)
        more = c.is_(index, "<", c["n"])
        module = c.take(c["modules"], b.select(more, index, i64(0)))
        room = c.is_(self.either(self.queue_lengths, module), "<", self.depth)
        return b.select(b.and_(more, room), c.largest(c.get(self.fetch_time), c.get(self.now)), i64(NEVER))

    def fetch(self) -> None:
        """Moves an instruction into its queue."""
        c = self.c
        index = c.get(self.fetch_count)
        module = c.take(c["modules"], index)
        for m, place in enumerate(self.queue_lengths):
            c.set(place, c.add(c.get(place), c.build.zext(c.is_(module, "==", i64(m)), i64(0).type)))
        c.set(self.fetch_count, c.add(index, i64(1)))
        c.set(self.fetch_time, c.add(c.get(self.now), self.interval))

    def module_at(self, m: int) -> Value:
        """Computes the time of a module's next event."""
        c, b = self.c, self.c.build
        running = c.is_(c.get(self.status[m]), "==", i64(RUNNING))
        ready = c.is_(c.get(self.queue_lengths[m]), ">", i64(0))
        index = b.select(ready, c.get(self.head[m]), i64(0))
        for number, queue in enumerate(POPS[m]):
            if queue >= 0:
                wanted = c.take(c["flags"], c.add(c.mul(index, i64(4)), i64(number)))
                ready = b.and_(ready, c.is_(wanted, "<=", c.get(self.tokens[queue])))
        time = c.largest(c.get(self.time[m]), c.get(self.now))
        return b.select(b.or_(running, ready), time, i64(NEVER))

    def step(self, m: int) -> None:
        """Runs a module's event: a start, a row, or an end."""
        c = self.c
        index = c.get(self.head[m])
        with c.build.if_else(c.is_(c.get(self.status[m]), "==", i64(IDLE))) as (idle, running):
            with idle:
                self.begin(m, index)
            with running, c.build.if_else(c.is_(c.get(self.rows[m]), ">", i64(0))) as (row, over):
                with row:
                    self.transfer(m, index)
                with over:
                    self.end(m, index)

    def cost(self, index: Value, number: int) -> Value:
        """Reads one of the costs of an instruction."""
        return self.c.take(self.c["costs"], self.c.add(self.c.mul(index, i64(4)), i64(number)))

    def begin(self, m: int, index: Value) -> None:
        """Takes the instruction out of its queue, and its tokens."""
        c, b = self.c, self.c.build
        for number, queue in enumerate(POPS[m]):
            if queue >= 0:
                wanted = c.take(c["flags"], c.add(c.mul(index, i64(4)), i64(number)))
                c.set(self.tokens[queue], b.sub(c.get(self.tokens[queue]), wanted))
        c.set(self.queue_lengths[m], b.sub(c.get(self.queue_lengths[m]), i64(1)))
        c.put(c["start"], index, c.get(self.now))
        rows = self.cost(index, ROWS)
        gap = b.select(c.is_(rows, ">", i64(0)), self.cost(index, GAP), i64(0))
        c.set(self.rows[m], rows)
        c.set(self.time[m], c.add(c.get(self.now), self.cost(index, WORK), gap))
        c.set(self.status[m], i64(RUNNING))

    def transfer(self, m: int, index: Value) -> None:
        """Schedules a row on the port, which it gets after all earlier rows."""
        c, b = self.c, self.c.build
        done = c.add(c.largest(c.get(self.now), c.get(self.port)), self.cost(index, BUSY))
        c.set(self.port, done)
        left = b.sub(c.get(self.rows[m]), i64(1))
        c.set(self.rows[m], left)
        gap = b.select(c.is_(left, ">", i64(0)), self.cost(index, GAP), i64(0))
        c.set(self.time[m], c.add(done, gap))

    def end(self, m: int, index: Value) -> None:
        """Gives the tokens, up to the limit of their queues."""
        c, b = self.c, self.c.build
        for number, queue in enumerate(PUSHES[m], 2):
            if queue >= 0:
                given = c.take(c["flags"], c.add(c.mul(index, i64(4)), i64(number)))
                count = c.add(c.get(self.tokens[queue]), given)
                c.set(self.tokens[queue], b.select(c.is_(count, "<", self.limit), count, self.limit))
        c.put(c["end"], index, c.get(self.now))
        c.set(self.head[m], c.take(c["next"], index))
        c.set(self.status[m], i64(IDLE))
        c.set(self.end_time, c.add(c.get(self.end_time), i64(1)))
