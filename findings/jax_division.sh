#!/usr/bin/env bash
# Guess: float32 division on CPUs is correctly rounded unless one asks for fast mathematics.
# Case: XLA turns a division by a scalar into a product with its reciprocal, with or without `jit`: more than half of
# the quotients by 7 differ from NumPy's. Division of two arrays is exact.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 jax==0.10.2 jaxlib==0.10.2
"$folder/env/bin/python" - <<'EOF'
import jax
import jax.numpy
import numpy

print("jax", jax.__version__)
generator = numpy.random.default_rng(0)
a, b = (generator.standard_normal(10000).astype(numpy.float32) for _ in range(2))
for divisor in (7, 10):
    exact = a / numpy.float32(divisor)
    eager = numpy.asarray(jax.numpy.asarray(a) / divisor)
    compiled = numpy.asarray(jax.jit(lambda x: x / divisor)(a))
    print("by", divisor, "equal to NumPy: eager", (eager == exact).mean(), "jit", (compiled == exact).mean())
    assert (eager == exact).mean() < 0.9 and (compiled == exact).mean() < 0.9
equal = (numpy.asarray(jax.numpy.asarray(a) / jax.numpy.asarray(b)) == a / b).mean()
print("two arrays, equal to NumPy:", equal)
assert equal == 1
EOF
