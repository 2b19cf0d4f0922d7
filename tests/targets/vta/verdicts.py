"""The oracle of the checkers: tries whether a stream of instructions is legal as far as its tokens go.

The machine has three modules whose order one may choose: any module may be held up. A possible mistake is looked for by
holding up the module on which it depends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from targets.vta.isa import Instruction, Load, Store

NEVER = 1 << 30


def instruction_module(op: Instruction) -> int:
    """Load, compute or store."""
    if isinstance(op, Store):
        return 2
    return 0 if isinstance(op, Load) and op.memory in (1, 2) else 1


@dataclass
class Machine:
    """A machine that runs everything that can run, but for the modules that are held up.

    Attributes:
        most: number of its own instructions that each module may run.
        depth: instructions that a queue holds, fetched in the order of the stream.
        peak: most tokens that were there at once, by giver and taker.
    """

    stream: Sequence[Instruction]
    most: tuple[int, int, int] = (NEVER, NEVER, NEVER)
    depth: int = NEVER
    tokens: dict[tuple[int, int], int] = field(
        default_factory=lambda: dict.fromkeys(((0, 1), (1, 0), (1, 2), (2, 1)), 0)
    )
    peak: dict[tuple[int, int], int] = field(default_factory=dict)
    ran: list[int] = field(default_factory=list)

    def run(self) -> Machine:
        """Runs all modules as far as they go."""
        done, fetched = [0, 0, 0], 0
        queues: list[list[int]] = [[], [], []]
        moving = True
        while moving:
            moving = False
            while fetched < len(self.stream) and len(queues[instruction_module(self.stream[fetched])]) < self.depth:
                queues[instruction_module(self.stream[fetched])].append(fetched)
                fetched += 1
            for m, queue in enumerate(queues):
                if queue and done[m] < self.most[m] and self.ready(m, self.stream[queue[0]]):
                    self.execute(m, queue.pop(0))
                    done[m] += 1
                    moving = True
        return self

    def ready(self, m: int, op: Instruction) -> bool:
        wanted = [(m - 1, m)] * op.pop_prev + [(m + 1, m)] * op.pop_next
        return all(self.tokens[pair] for pair in wanted)

    def execute(self, m: int, index: int) -> None:
        op = self.stream[index]
        for pair in [(m - 1, m)] * op.pop_prev + [(m + 1, m)] * op.pop_next:
            self.tokens[pair] -= 1
        for pair in [(m, m - 1)] * op.push_prev + [(m, m + 1)] * op.push_next:
            self.tokens[pair] += 1
            self.peak[pair] = max(self.peak.get(pair, 0), self.tokens[pair])
        self.ran.append(index)


def verdict(stream: Sequence[Instruction], queue_depth: int, token_limit: int) -> str:
    """`legal`, `deadlock`, or what else is wrong: `left`, `early` or `lost`."""
    whole = Machine(stream).run()
    if len(whole.ran) < len(stream) or len(Machine(stream, depth=queue_depth).run().ran) < len(stream):
        return "deadlock"
    if any(whole.tokens.values()):
        return "left"
    counts = [sum(instruction_module(op) == m for op in stream) for m in range(3)]
    for m in (0, 2):
        mine = [op for op in stream if instruction_module(op) == m]
        moves = [n for n, op in enumerate(mine) if isinstance(op, Load | Store) and elements(op)]
        if moves and len(stream) - 1 in Machine(stream, count_limits(m, moves[-1])).run().ran:
            return "early"
    for m in range(3):
        for count in range(counts[m]):
            peaks = Machine(stream, count_limits(m, count)).run().peak
            if any(peak > token_limit for (_, taker), peak in peaks.items() if taker == m):
                return "lost"
    return "legal"


def count_limits(module: int, count: int) -> tuple[int, int, int]:
    """A module stops after so many instructions."""
    first, second, third = (count if m == module else NEVER for m in range(3))
    return first, second, third


def elements(op: Load | Store) -> int:
    """Counts the elements that a transfer covers on the chip."""
    height = op.y_pad_0 + op.y_size + op.y_pad_1
    return height * (op.x_pad_0 + op.x_size + op.x_pad_1) if op.x_size else 0
