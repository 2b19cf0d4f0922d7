"""ONNX models as graphs: `import_model`, and the seeded weights of models that carry none."""

from __future__ import annotations

from autotune.graph.importer.model import import_model
from autotune.graph.importer.registry import IMPORTERS, supported
from autotune.graph.importer.weights import with_weights

__all__ = ["IMPORTERS", "import_model", "supported", "with_weights"]
