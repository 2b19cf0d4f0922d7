"""What runtimes are called where results are shown: each with the precision that it computes in."""

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


def title_of(runtime: str, precision: str, taken: str = "") -> str:
    """A runtime with its precision, as in "ONNX Runtime float32" or "OpenVINO as installed (bfloat16)".

    Args:
        runtime: as `autotune bench` has it, or any other.
        precision: of the model that it was given, or of an executable of ours.
        taken: type that one which chooses by itself says it computes floats in; "" where it does not say.
    """
    name = _NAMES.get(runtime, runtime)
    if runtime != AS_INSTALLED:
        return f"{name} {precision}"
    if not taken:
        return name
    return f"{name} ({taken if precision != INT8 else f'{INT8} and {taken}'})"
