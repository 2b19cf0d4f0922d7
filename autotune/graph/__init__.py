"""Networks as graphs: their import, passes and kernels, and ONNX Runtime on the same layers."""
