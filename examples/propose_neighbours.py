"""A proposer in fifty lines: neighbours of the fastest schedule so far. A language model's would begin like this.

autotune run configs/matmul.yaml --set search.strategy=proposer \
    --set 'search.options.command="python examples/propose_neighbours.py"'

It speaks the protocol of docs/proposers.md: a line of JSON comes in, a line goes out.
"""

from __future__ import annotations

import json
import random
import sys


def neighbour(sketch, values, rng):
    """Replaces the values of one decision by a row near it in its table."""
    changed = dict(values)
    open_to = [d for d in sketch["decisions"] if len(d["rows"]) > 1]
    if open_to:
        decision = rng.choice(open_to)
        rows = decision["rows"]
        here = [values[name] for name in decision["names"]]
        place = rows.index(here) if here in rows else 0
        step = rng.choice([-2, -1, 1, 2])
        changed.update(zip(decision["names"], rows[max(0, min(len(rows) - 1, place + step))], strict=True))
    return changed


def main():
    rng = random.Random(0)
    sketches, best, proposed_before = {}, None, set()
    for line in sys.stdin:
        request = json.loads(line)
        sketches.update({sketch["name"]: sketch for sketch in request.get("sketches", [])})
        for measured in request["history"]:
            if measured["seconds"] is not None and (best is None or measured["seconds"] < best["seconds"]):
                best = measured
        proposals = []
        for _ in range(64 * request["propose"]) if best else ():  # nothing is known at first: others begin
            values = neighbour(sketches[best["sketch"]], best["values"], rng)
            key = (best["sketch"], json.dumps(values, sort_keys=True))
            if key not in proposed_before and len(proposals) < request["propose"]:
                proposed_before.add(key)
                proposals.append({"sketch": best["sketch"], "values": values})
        print(json.dumps({"proposals": proposals}), flush=True)


if __name__ == "__main__":
    main()
