"""Networks served to several callers, beside ONNX Runtime and OpenVINO."""
