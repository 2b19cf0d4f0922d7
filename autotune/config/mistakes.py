"""Sentences for values that sections refuse, made of pydantic's errors: the rule, then the value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from autotune.naming import brief
from search_space.operators.checks import nearest


def list_mistakes(error: ValidationError, section: type[BaseModel]) -> list[tuple[str, str]]:
    """Lists (dotted path of the key, sentence) of each mistake in a section."""
    return [(".".join(map(str, item["loc"])), _sentence(item, section)) for item in error.errors()]


def in_python(error: ValidationError, section: type[BaseModel]) -> str:
    """Joins the mistakes in a section that is made in Python, whose keys are arguments."""
    sentences = []
    for key, sentence in list_mistakes(error, section):
        sentence = sentence.replace("greater than or equal to", "at least").replace("less than or equal to", "at most")
        sentences.append(f"`{key}` {sentence.replace(', but got ', f', but got {key}=', 1)}" if key else sentence)
    return "\n".join(sentences)


def _sentence(item: Any, section: type[BaseModel]) -> str:
    if item["type"] == "extra_forbidden":
        known, name = fields_at(section, item["loc"][:-1]), str(item["loc"][-1])
        return f"must be one of the known keys{nearest(name, known) or ' ' + ', '.join(known)}"
    if item["type"] == "value_error":
        return str(item["ctx"]["error"])
    if item["type"] == "missing":
        return "must be given"
    if item["type"] == "model_type":
        return f"must be a mapping of keys, but got {brief(item['input'])}"
    # `Input should be x` -> `must be x`
    rule = item["msg"].replace("Input should", "must", 1).replace("String should", "must", 1)
    return f"{rule}, but got {brief(item['input'])}"


def fields_at(section: type[BaseModel], location: Sequence[int | str]) -> dict[str, FieldInfo]:
    """Finds the fields of the section at a path of keys and places in lists; {} where it holds no section."""
    for name in location:
        if isinstance(name, int):  # an item of a list, whose section is known already
            continue
        inner = _section_in(section.model_fields[name].annotation)
        if inner is None:
            return {}
        section = inner
    return section.model_fields


def _section_in(annotation: Any) -> type[BaseModel] | None:
    """Finds the section type in a key's annotation: itself, `or null`, or in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _section_in(part))), None)
