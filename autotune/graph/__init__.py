"""Networks as ONNX graphs: reading them, finding their tasks, and ONNX Runtime on the same layers."""
