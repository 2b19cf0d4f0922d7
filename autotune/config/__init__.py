"""Configuration of a run: what its keys are, and how files of them are read."""

from __future__ import annotations

from autotune.config.errors import ConfigError, errors_at, in_file
from autotune.config.reading import (
    check_config,
    check_section,
    find_default,
    find_description,
    json_schema,
    load_config,
    make_config,
    parse_overrides,
)
from autotune.config.sections import (
    Collect,
    CompileConfig,
    Measure,
    Model,
    Network,
    Quantisation,
    RunConfig,
    Search,
    Sizes,
    SourceConfig,
    Tracking,
    Transfer,
    WorkloadConfig,
)

__all__ = [
    "Collect",
    "CompileConfig",
    "ConfigError",
    "Measure",
    "Model",
    "Network",
    "Quantisation",
    "RunConfig",
    "Search",
    "Sizes",
    "SourceConfig",
    "Tracking",
    "Transfer",
    "WorkloadConfig",
    "check_config",
    "check_section",
    "make_config",
    "find_default",
    "find_description",
    "errors_at",
    "in_file",
    "json_schema",
    "load_config",
    "parse_overrides",
]
