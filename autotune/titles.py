"""Titles of runtimes where results are shown: each with the precision that it computes in."""

from __future__ import annotations

INT8 = "int8"
"""Precision of a network whose layers are quantised."""

AS_INSTALLED = "openvino-as-installed"
"""Runtime that chooses its precision by itself."""

_NAMES = {
    "autotune": "autotune",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    AS_INSTALLED: "OpenVINO as installed",
}


def runtime_title(runtime: str, precision: str, computed_in: str = "") -> str:
    """Returns the title of a runtime with its precision, as in "ONNX Runtime float32" or "OpenVINO as installed
    (bfloat16)".

    Args:
        runtime: name of the runtime, such as `autotune bench` takes.
        precision: precision of the model that the runtime was given, or of an executable of ours.
        computed_in: type that a runtime which chooses by itself reports for its floats; "" if it reports none.
    """
    name = _NAMES.get(runtime, runtime)
    if runtime != AS_INSTALLED:
        return f"{name} {precision}"
    if not computed_in:
        return name
    return f"{name} ({computed_in if precision != INT8 else f'{INT8} and {computed_in}'})"
