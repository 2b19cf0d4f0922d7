"""ONNX models and their files: reading, shape inference, and evaluation node by node."""
