"""ONNX models and their files: read, completed by shapes, evaluated node by node."""
