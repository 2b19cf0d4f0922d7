"""Reading configurations: YAML and overrides, checked against the sections; every mistake is a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from autotune.config import strict_yaml
from autotune.config.errors import ConfigError, in_file
from autotune.config.mistakes import fields_at, list_mistakes
from autotune.config.sections import RunConfig, Section
from autotune.naming import brief

S = TypeVar("S", bound=Section)


def load_config(path: str | Path, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """Reads a configuration file.

    Args:
        path: YAML file.
        overrides: dotted key -> value, which win over the file.

    Raises:
        ConfigError: no such file, no YAML, or keys and values outside the schema.
    """
    with in_file(path):
        data = _read(Path(path))
        data.setdefault("name", Path(path).stem)
    return make_config(data, overrides or {}, str(path))


def make_config(data: dict[str, Any], overrides: Mapping[str, Any], where: str) -> RunConfig:
    """Makes a configuration of plain data, which changes, and overrides; `where` is named in messages.

    Raises:
        ConfigError: keys and values outside the schema.
    """
    with in_file(where):
        for key, value in overrides.items():
            _override(data, key, value)
    return check_config(data, where)


def check_config(data: Mapping[str, Any], where: str) -> RunConfig:
    """Checks a configuration of plain data; messages name `where`."""
    return check_section(RunConfig, data, where)


def check_section(kind: type[S], data: Mapping[str, Any], where: str) -> S:
    """Makes a section of plain data; `where` is named in messages.

    Raises:
        ConfigError: keys and values outside the schema.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        with in_file(where):
            raise ConfigError.of(list_mistakes(error, kind)) from None


def parse_overrides(items: Sequence[str]) -> dict[str, Any]:
    """Parses `key=value` texts to dotted keys and YAML values."""
    overrides: dict[str, Any] = {}
    for item in items:
        key, equals, text = item.partition("=")
        if not key or not equals:
            raise ConfigError(f"`--set` must be key=value, but got {item!r}")
        try:
            overrides[key] = strict_yaml.loads(text)
        except yaml.YAMLError as error:
            why = getattr(error, "problem", None) or error
            raise ConfigError(f"`--set` must have a YAML value, but got {brief(item)}: {why}") from None
    return overrides


def find_description(key: str) -> str:
    """Finds the description of a dotted key.

    Raises:
        KeyError: no such key.
    """
    return _join_lines(_find_field(key).description or "")


def find_default(key: str) -> Any:
    """Finds the default of a dotted key; None for a key whose description says it behind "null:".

    Raises:
        KeyError: no such key.
    """
    return _find_field(key).default


def _find_field(key: str) -> FieldInfo:
    *parents, name = key.split(".")
    return fields_at(RunConfig, parents)[name]


def json_schema() -> dict[str, Any]:
    """Makes the published JSON schema of a configuration file, in which `name` may be left out."""
    schema = RunConfig.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema.pop("required", None)
    schema["oneOf"] = [
        {"required": [key], "properties": {key: {"not": {"type": "null"}}}} for key in ("model", "workload", "collect")
    ]
    _join_descriptions(schema)
    return schema


def _join_lines(text: str) -> str:
    """Joins the lines of a description."""
    return " ".join(text.split())


def _join_descriptions(schema: Any) -> None:
    """Joins the lines of every description in a JSON schema, in place."""
    for name, value in schema.items() if isinstance(schema, dict) else enumerate(schema):
        if name == "description" and isinstance(value, str):
            schema[name] = _join_lines(value)
        elif isinstance(value, dict | list):
            _join_descriptions(value)


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open(encoding="utf-8") as file:
            data = strict_yaml.loads(file.read(strict_yaml.MOST_CHARACTERS + 1))
    except FileNotFoundError:
        raise ConfigError(
            "a configuration must be a YAML or .onnx file, or a name of `autotune models`, but there is no such file",
            "",
        ) from None
    except OSError as error:
        raise ConfigError(f"a configuration must be a readable file, but: {error.strerror}", "") from None
    except UnicodeDecodeError:
        raise ConfigError("a configuration must be text in UTF-8", "") from None
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or error
        line = str(mark.line + 1) if mark else ""
        raise ConfigError(f"a configuration must be YAML, but {problem}", line) from None
    if not isinstance(data, dict):
        raise ConfigError(f"a configuration must be a mapping of keys, but got {type(data).__name__}", "")
    return data


def _override(data: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    if len(parents) > strict_yaml.MOST_DEPTH:
        raise ConfigError(f"a key must be at most {strict_yaml.MOST_DEPTH} deep, but got {brief(key)}", "")
    for depth, parent in enumerate(parents):
        inner = data.get(parent)
        if inner is None:
            inner = data[parent] = {}
        if not isinstance(inner, dict):
            whole = ".".join(parents[: depth + 1])
            raise ConfigError(f"a key that holds others must be a mapping, but got {brief(inner)}", whole)
        data = inner
    data[last] = value
