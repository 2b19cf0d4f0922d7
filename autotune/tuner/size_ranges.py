"""Choice of candidates for sizes: few of many, and one for each range of sizes.

A point is a size, or a small range of sizes. A candidate is a schedule, or all schedules that share memory. Its cost at
a point is its time there, measured or estimated, times the weight of the point; it is infinite where the candidate does
not hold. A network has several kernels that share their ranges, and pays for each range and each copy of its weights.
An operator has one kernel, few schedules and any number of ranges.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def choose_candidates(costs: Matrix, prices: Matrix, limit: int | None = None) -> list[int]:
    """Chooses candidates that together cost little, by local search.

    The cost of a set is its prices plus, at each point, the least of its costs. To find the set of the least cost is
    NP-hard, as facility location is. Therefore one candidate at a time is added, dropped or exchanged for another, each
    time the one that gains the most (Kuehn and Hamburger, 1963).

    Args:
        costs: cost of each candidate at each point, (candidates, points), not negative.
        prices: prices of the candidates, (candidates,), not negative.
        limit: largest number of candidates, 1 or more; None: any number.

    Returns:
        Rows of `costs`.
    """
    nothing, limit = len(costs), limit or len(costs)
    rows = _finite(np.pad(costs, ((0, 1), (0, 0)), constant_values=np.inf), prices.sum())  # the last row is `nothing`
    prices = np.append(prices, 0.0)
    chosen: list[int] = []
    total, position = np.inf, 0
    while position < min(len(chosen) + 1, limit):
        others = [*chosen[:position], *chosen[position + 1 :]]  # all chosen ones at the last position
        totals = np.minimum(rows[[*others, nothing]].min(0), rows).sum(1) + prices + prices[others].sum()
        row = int(totals.argmin())
        if totals[row] < total:
            chosen, total, position = others if row == nothing else [*others, row], totals[row], 0
        else:
            position += 1
    return chosen


def choose_ranges(
    costs: Matrix, price: float = 0.0, limit: int | None = None
) -> list[tuple[int, int, NDArray[np.int64]]]:
    """Divides points into ranges that together cost the least, each with one candidate of each kernel.

    If ranges are free each point has its best candidates, and neighbours that agree are one range. Otherwise the least
    cost for each number of ranges is found as for segments of a curve (Bellman, 1961).

    Args:
        costs: cost of each candidate at each point, (kernels, candidates, points), not negative; points in order.
        price: cost that each further range must save, on average over all further ranges.
        limit: largest number of ranges, 1 or more; None: any number.

    Returns:
        Begin and end of each range, the end exclusive, and the candidate of each kernel, (kernels,).

    Raises:
        ValueError: there are no ranges within the limit where candidates hold.
    """
    count = costs.shape[2]
    if not price and limit is None:
        best = costs.argmin(1)  # (kernels, points)
        ends = [*(np.flatnonzero((best[:, 1:] != best[:, :-1]).any(0)) + 1).tolist(), count]
    else:
        sums = np.pad(_finite(costs).cumsum(2), ((0, 0), (0, 0), (1, 0)))  # (kernels, candidates, points + 1)
        of_each = ((rows[:, None, :] - rows[:, :, None]).min(0) for rows in sums)  # all at once take too much memory
        of_range = sum(of_each, np.zeros(()))  # (begin, end)
        of_range[np.tril_indices(count + 1)] = np.inf
        ends = _ends(of_range, price, min(limit or count, count))
    ranges = []
    for begin, end in zip([0, *ends], ends, strict=False):
        totals = costs[:, :, begin:end].sum(2)  # differences of `sums` have the rounding errors of other points
        if np.isinf(totals.min(1)).any():
            raise ValueError(f"candidates must hold in at most `limit` ranges, but got limit={limit}")
        ranges.append((begin, end, totals.argmin(1)))
    return ranges


def _finite(costs: Matrix, prices: float = 0.0) -> Matrix:
    """Replaces infinite costs by a cost larger than all others and the prices together."""
    holds = np.isfinite(costs)
    return np.where(holds, costs, 1 + costs[holds].sum() + prices)


def _ends(costs: Matrix, price: float, limit: int) -> list[int]:
    """Computes where ranges end, the last one behind all points.

    Args:
        costs: cost of a range from one point up to another, (points + 1, points + 1); infinite for an empty range.
        price, limit: arguments of `choose_ranges`.
    """
    best, before = [costs[0]], [np.zeros(len(costs), np.int64)]
    while len(best) < limit:
        through = best[-1][:, None] + costs
        before.append(through.argmin(0))
        best.append(through.min(0))
    values = np.array([each[-1] for each in best])
    enough = values <= values.min() + price * np.arange(len(values))[::-1]
    ends, end = [], len(costs) - 1
    for number in range(int(enough.argmax()), -1, -1):
        ends.append(end)
        end = int(before[number][end])
    return ends[::-1]
