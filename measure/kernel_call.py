"""One call of a kernel for its own sake, in a worker process: load, run on arrays, time, return the output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from measure.arrays import pack_arrays, unpack_arrays
from measure.errors import ErrorClass, TrialFailure
from measure.timing import replace_zeros
from targets import registry
from targets.base import Module, RunError
from targets.threads import MOST_THREADS, check_threads

MOST_SAMPLES = 100_000  # timed executions of a call


def handle(
    call: Mapping[str, Any], blob: bytes, on_prepared: Callable[[], None] = lambda: None
) -> tuple[dict[str, Any], bytes]:
    """Runs a kernel once, and then `iterations` times to time it.

    Args:
        call: `target`; `module_bytes`; `arrays`, the description of inputs, or null with a `workload` whose inputs of
            `seed` are made here; `iterations` to time; `threads`, null for all.
        blob: the module, then the inputs' bytes.
        on_prepared: function that is called when the inputs are ready.

    Returns:
        `output`, the description of the output, and `latencies`, seconds of each timed execution; the output's bytes.

    Raises:
        TrialFailure: the kernel does not take the inputs, or the call is malformed.
        RunError: the kernel reports a fault of its own, as simulators do.
    """
    try:
        size, iterations, threads = int(call["module_bytes"]), int(call["iterations"]), call["threads"]
        if not 0 <= iterations <= MOST_SAMPLES:
            raise ValueError(f"`iterations` must be 0 to {MOST_SAMPLES}, but got iterations={iterations}")
        if threads is not None:
            check_threads(threads, MOST_THREADS)
        if call["arrays"] is None:
            from search_space.workloads import Workload  # most processes never need it

            inputs = list(Workload.from_json(dict(call["workload"])).make_inputs(int(call["seed"])))
        else:
            inputs = unpack_arrays(call["arrays"], blob[size:])
        kernel = registry.get(call["target"]).load(Module.from_bytes(blob[:size]))
        bound = kernel.bind(inputs)
    except RunError as error:
        if error.fatal:
            raise
        raise TrialFailure(ErrorClass.instantiation, str(error)) from error
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise TrialFailure(ErrorClass.instantiation, f"a call must be right, but: {error}") from error
    on_prepared()
    output = bound.run(threads)
    described, data = pack_arrays([output])
    latencies = replace_zeros(bound.time(iterations, threads)).tolist() if iterations else []
    return {"output": described[0], "latencies": latencies, "metrics": bound.metrics()}, data
