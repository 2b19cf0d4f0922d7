"""Options of a compilation: what is refused, and that everything is refused in one place."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.compiler.executable.shapes import ShapeSet
from autotune.compiler.modes import quantisation_mode
from autotune.compiler.options import CompileOptions
from autotune.compiler.pipeline import make_pipeline
from autotune.config import ConfigError
from autotune.graph.passes.early_means import EarlyMeans
from targets import registry

OPEN = ShapeSet.of({"n": (1, 8)})


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"precision": "float64"}, "`precision` must be one of float32, bfloat16, float16, mixed, but got"),
        ({"quantise": "int4"}, "`quantise` must be one of int8, shift8, weights8, weights4, but got quantise='int4'"),
        ({"precision": "mixed", "quantise": "weights4"}, "must be int8 or None beside mixed precision"),
        ({"precision": "bfloat16", "quantise": "shift8"}, "`precision` must be float32 beside quantise='shift8'"),
        ({"device": "vta"}, "`quantise` must be 'shift8' for layers on vta, but got quantise=None"),
        ({"device": "vta", "quantise": "int8"}, "`quantise` must be 'shift8' for layers on vta"),
        (
            {"shapes": OPEN, "quantise": "int8"},
            "`network.quantise` must be left out where `sizes` are open",
        ),
        ({"shapes": OPEN, "precision": "mixed"}, "`network.precision` must be left out"),
        (
            {"shapes": OPEN, "substitutions": (EarlyMeans(),)},
            "`network.substitutions` must be left out",
        ),
        ({"shapes": OPEN, "sparsity": 0.5}, "`network.sparsity` must be left out where `sizes` are open"),
        (
            {"precision": "float16", "sparsity": 0.5},
            "`sparsity` must be None but for layers in float32, bfloat16 or int8, "
            "but got precision='float16', quantise=None",
        ),
        (
            {"target": "cuda", "sparsity": 0.5},
            "`sparsity` must be None but for targets on a CPU, but got target='cuda'",
        ),
        ({"quantise": "weights8", "sparsity": 0.5}, "but got precision='float32', quantise='weights8'"),
    ],
)
def test_what_excludes_each_other_is_refused(arguments: dict[str, Any], rule: str) -> None:
    device = registry.get(arguments.pop("device")) if "device" in arguments else None
    with pytest.raises((ValueError, ConfigError), match=rule):
        arguments |= {"target": registry.get(arguments["target"])} if "target" in arguments else {}
        CompileOptions(device=device, **arguments)


def test_names_become_modes() -> None:
    options = CompileOptions(precision="bfloat16", quantise="weights8")  # type: ignore[arg-type]
    assert options.quantise is not None
    assert (options.precision.name, options.quantise.name) == ("bfloat16", "weights8")
    assert options.quantise.weights_only and not options.plain and CompileOptions().plain


def test_a_device_needs_an_instruction_on_blocks() -> None:
    options = CompileOptions(device=registry.get("cpu"), quantise=quantisation_mode("shift8"))
    with pytest.raises(ValueError, match="`device` must be a target with a matrix instruction on blocks"):
        make_pipeline(options)


def test_passes_follow_the_options() -> None:
    def names(**options: Any) -> list[str]:
        return [step.name for step in make_pipeline(CompileOptions(registry.get("cpu"), **options)).passes]

    plain = names()
    assert plain[:3] == ["unroll_loops", "optimise", "check_types"] and plain[-1] == "copy_views"
    assert names(precision="bfloat16")[-2] == "lower_precision" and "keep_bytes" in plain
    assert "quantise" in names(quantise="int8") and "keep_bytes" not in names(quantise="int8")
    assert "early_means" in names(substitutions=(EarlyMeans(),))
