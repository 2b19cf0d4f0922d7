"""Merging of neighbouring parts of a word, the best pair first: the step that both kinds of tokenizers share."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence


def merge_parts(parts: Sequence[str], cost: Callable[[str, str], float | None]) -> list[str]:
    """Joins neighbours until no pair may be joined.

    The pair of the least cost is joined first, of equal ones the leftmost. A word of n parts takes n log n steps.

    Args:
        parts: parts of the word in order.
        cost: function of a left and a right part; None: they are not joined.

    Returns:
        The parts that are left, in order.
    """
    texts = list(parts)
    count = len(texts)
    before, after = list(range(-1, count - 1)), list(range(1, count + 1))
    heap: list[tuple[float, int, int, str, str]] = []

    def offer(left: int) -> None:
        if left < 0 or after[left] >= count:
            return
        right = after[left]
        price = cost(texts[left], texts[right])
        if price is not None:
            heapq.heappush(heap, (price, left, right, texts[left], texts[right]))

    for position in range(count - 1):
        offer(position)
    while heap:
        _, left, right, first, second = heapq.heappop(heap)
        if texts[left] != first or texts[right] != second or after[left] != right:
            continue  # one of them was joined with another part meanwhile
        texts[left], texts[right] = first + second, ""
        after[left] = after[right]
        if after[left] < count:
            before[after[left]] = left
        offer(before[left])
        offer(left)
    return [text for text in texts if text]
