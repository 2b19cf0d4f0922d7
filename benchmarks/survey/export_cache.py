"""Cache of exported models, shared by surveys, so that a later one begins after exporting."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.provenance import versions
from benchmarks.survey.models import Model

WRITTEN_BY = ("onnx", "timm", "torch", "torchvision", "transformers")
NOTE_KEYS = ("exporter", "export_seconds")


class ExportCache:
    """The export of a model in a folder, by all that it depends on.

    Args:
        folder: folder of exports; made if it is missing.
        model: model to export.
        seed: seed of its weights.
        exporters: exporters that may write it, in their order.

    Attributes:
        file: file of the model, which may be missing.
        facts: facts of its export; empty if it is still to be made.
    """

    def __init__(self, folder: Path, model: Model, seed: int, exporters: Sequence[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps([model.to_json(), seed, list(exporters), versions(WRITTEN_BY)], sort_keys=True)
        stem = f"{model.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        self.file, self._notes = folder / f"{stem}.onnx", folder / f"{stem}.json"
        found = self.file.exists() and self._notes.exists()
        self.facts: dict[str, Any] = json.loads(self._notes.read_text()) if found else {}

    def note(self, facts: Mapping[str, Any]) -> None:
        """Says that the file is whole, and how it came about."""
        self._notes.write_text(json.dumps({name: facts[name] for name in NOTE_KEYS}))
