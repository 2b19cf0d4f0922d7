# %% [markdown]
# # Write a sketch rule
#
# A sketch rule says how one kind of stage may be scheduled. Its numbers stay open: they are decisions, which the
# search takes. Here is a rule for transposition, what it adds to the search space, and what that does to the kernel.

# %%
import matplotlib.pyplot as plt
import numpy as np

import autotune
from autotune.config import Search
from search_space import te
from search_space.machines.cpu.elementwise import Elementwise
from search_space.machines.registry import get_rules, register_rule
from search_space.sketch.base import SketchRule
from search_space.space import generate
from search_space.workloads import Workload
from targets import registry

# %% [markdown]
# ## Before
#
# A scaled transposition. The rule that takes it, `elementwise`, knows two sketches: vectors over all elements, or
# rows of vectors. Both write whole rows, and so read a column at a time: each read touches another cache line.

# %%
N = 768
x = te.placeholder((N, N), name="x")
y = te.compute((N, N), lambda i, j: x[j, i] * 2.0, name="y")
workload = Workload.of([x, y])
hardware = registry.get("cpu").hardware


def show(space):
    """Prints the sketches of a space, with the decisions of each."""
    for sketch in space.sketches:
        tables = ", ".join(f"{group.name}: {len(group.table)} choices" for group in sketch.groups)
        print(f"{sketch.name:14} {sketch.size:3} candidates ({tables})")


print(*(rule.name for rule in get_rules("cpu")))
before = generate(workload, hardware)
show(before)

# %% [markdown]
# ## The rule
#
# In tiles of a few rows and vectors, what is read for one row is still in the cache for the next. `matches` says
# which stages the rule knows; `apply` returns variants. It returns those of `elementwise` too, for the first rule
# that matches decides alone.


# %%
class Tiles(SketchRule):
    """A rule that tiles outputs with rows and columns, besides the sketches of `elementwise`."""

    name = "tiles"

    def matches(self, draft, stage, hardware):
        return stage.name in draft.state.outputs and stage.reducer is None and len(stage.axes) == 2

    def apply(self, draft, stage, hardware):
        name, (row, column) = stage.name, stage.spatial
        sizes = [(tile, vectors) for tile in (4, 8, 16, 32, 64) for vectors in (1, 2, 4)]
        tiled, (tile, vectors) = draft.choose_row(name, ("tile", "vectors"), sizes)
        tiled, (i0, i1) = tiled.split(name, row, (tile,), "guard")
        tiled, (j0, j1, lanes) = tiled.split(name, column, (vectors, hardware.float_lanes), "guard")
        tiled = tiled.reorder(name, i0, j0, i1, j1, lanes).parallel(name, i0).vectorize(name, lanes)
        return [tiled.variant("tiles").finish(name), *Elementwise().apply(draft, stage, hardware)]


register_rule(Tiles(), before="elementwise")
after = generate(workload, hardware)
show(after)
print(after.sketches[0].steps, after.sketches[0].program, sep="\n\n")

# %% [markdown]
# The loops are symbolic: `y.tile` and `y.vectors` stand for the numbers. So a sketch is lowered once, and thousands
# of its candidates are scored at once.
#
# ## What it changes
#
# A few trials of the whole space, measured on this machine and compared with a reference. `random` takes sketches
# equally often, whatever the cost model thinks of a rule that it has never seen.

# %%
result = autotune.tune(workload, trials=18, search=Search(strategy="random", finalists=0), seed=0)
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for place, sketch in enumerate(after.sketches):
    seconds = np.array([record.seconds for record in result.records if record.provenance.sketch == sketch.name])
    axes.scatter(np.full(len(seconds), place), seconds * 1e3, alpha=0.7)
    print(f"{sketch.name:14} {len(seconds)} trials, best {seconds.min() * 1e3:.3f} ms")
axes.set_xticks(range(len(after.sketches)), [sketch.name for sketch in after.sketches])
axes.set(ylabel="latency, ms", ylim=(0, None))
plt.show()
print(result.errors or "no failures")

# %% [markdown]
# ## The kernel
#
# The best schedule is plain data and needs the rule no more. It is held against NumPy once more.

# %%
array = workload.make_inputs(seed=1)[0]
np.testing.assert_allclose(result.kernel(array), array.T * 2)
print(result.trace)
