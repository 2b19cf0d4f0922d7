"""Configuration of a run: what its keys are, and how files of them are read."""

from __future__ import annotations

from autotune.config.errors import ConfigError, errors_at
from autotune.config.reading import check_config, json_schema, load_config, parse_overrides
from autotune.config.sections import (
    DEFAULT_MODEL,
    CollectConfig,
    CostModelConfig,
    MeasureConfig,
    NetworkConfig,
    QuantisationConfig,
    RunConfig,
    SearchConfig,
    SourceConfig,
    TrackingConfig,
    TransferConfig,
    WorkloadConfig,
)

__all__ = [
    "DEFAULT_MODEL",
    "CollectConfig",
    "ConfigError",
    "CostModelConfig",
    "MeasureConfig",
    "NetworkConfig",
    "QuantisationConfig",
    "RunConfig",
    "SearchConfig",
    "SourceConfig",
    "TrackingConfig",
    "TransferConfig",
    "WorkloadConfig",
    "check_config",
    "errors_at",
    "json_schema",
    "load_config",
    "parse_overrides",
]
