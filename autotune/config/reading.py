"""Reading configurations: YAML and overrides, checked against the sections; every mistake is a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from autotune.config import strict_yaml
from autotune.config.errors import ConfigError
from autotune.config.sections import RunConfig
from autotune.naming import brief, nearest


def load_config(path: str | Path, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """Reads a configuration file.

    Args:
        path: YAML file.
        overrides: dotted key -> value, which win over the file.

    Raises:
        ConfigError: no such file, no YAML, or keys and values outside the schema.
    """
    try:
        with Path(path).open(encoding="utf-8") as file:
            data = strict_yaml.loads(file.read(strict_yaml.MOST_CHARACTERS + 1))
    except OSError as error:
        raise ConfigError(f"{path}: a configuration must be a readable file, but: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: a configuration must be text in UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(
            f"{path}{line}: a configuration must be YAML, but {getattr(error, 'problem', None) or error}"
        ) from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: a configuration must be a mapping of keys, but got {type(data).__name__}")
    data.setdefault("name", Path(path).stem)
    for key, value in (overrides or {}).items():
        _override(data, key, value, path)
    return check_config(data, str(path))


def check_config(data: Mapping[str, Any], where: str) -> RunConfig:
    """Configuration of plain data; `where` is named in messages."""
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(_sentences(error, where))) from None


def parse_overrides(items: Sequence[str]) -> dict[str, Any]:
    """Dotted keys and YAML values of `key=value` texts."""
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


def json_schema() -> dict[str, Any]:
    """The published JSON schema of a configuration file, in which `name` may be left out."""
    schema = RunConfig.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema.pop("required", None)
    schema["oneOf"] = [
        {"required": [key], "properties": {key: {"not": {"type": "null"}}}} for key in ("model", "workload", "collect")
    ]
    return schema


def _override(data: dict[str, Any], key: str, value: Any, path: str | Path) -> None:
    *parents, last = key.split(".")
    if len(parents) > strict_yaml.MOST_DEPTH:
        raise ConfigError(f"{path}: a key must be at most {strict_yaml.MOST_DEPTH} deep, but got {brief(key)}")
    for depth, parent in enumerate(parents):
        inner = data.get(parent)
        if inner is None:
            inner = data[parent] = {}
        if not isinstance(inner, dict):
            whole = ".".join(parents[: depth + 1])
            raise ConfigError(f"{path}:{whole}: a key that holds others must be a mapping, but got {brief(inner)}")
        data = inner
    data[last] = value


def _sentences(error: ValidationError, where: str) -> list[str]:
    sentences: list[str] = []
    for item in error.errors():
        place = ":" + ".".join(map(str, item["loc"])) if item["loc"] else ""
        if item["type"] == "extra_forbidden":
            known = _fields_at(item["loc"][:-1])
            name = str(item["loc"][-1])
            told = f"must be one of the known keys{nearest(name, known) or ' ' + ', '.join(known)}"
        elif item["type"] == "value_error":
            told = str(item["ctx"]["error"])
        elif item["type"] == "missing":
            told = "must be given"
        else:
            told = f"{_rule(item['msg'])}, but got {brief(item['input'])}"
        sentences.append(f"{where}{place}: {told}")
    return sentences


def _rule(message: str) -> str:
    """pydantic's sentence as a rule: `Input should be x` -> `must be x`."""
    return message.replace("Input should", "must", 1).replace("String should", "must", 1)


def _fields_at(place: Sequence[int | str]) -> dict[str, FieldInfo]:
    section: type[BaseModel] = RunConfig
    for name in place:
        if isinstance(name, int):  # an item of a list, whose section is known already
            continue
        inner = _section_in(section.model_fields[name].annotation)
        if inner is None:
            return {}
        section = inner
    return section.model_fields


def _section_in(annotation: Any) -> type[BaseModel] | None:
    """The section that a key holds: itself, `or null`, or in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _section_in(part))), None)
