"""The community's format for spaces, T1: a JSON file with parameters, their values and restrictions on them.

Kernel Tuner, KTT and the FAIR benchmark hub exchange it (Tørring et al., "Towards a benchmarking suite for kernel
tuners", 2023). Its description of the kernel itself is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from search_space.files import replace_file
from search_space.parameters.expression import ExpressionError, Restriction
from search_space.parameters.listing import evaluate_list
from search_space.parameters.space import Parameter, ParameterSpace, Value

MOST_BYTES = 64 << 20
"""Greatest size of a file that is read."""
Kind = type[int] | type[float] | type[bool] | type[str]
KINDS: Mapping[str, Kind] = {"int": int, "uint": int, "float": float, "bool": bool, "string": str}


class T1Error(ValueError):
    """A file that is no space."""


def read_t1(path: Path) -> ParameterSpace:
    """Reads the space of a T1 file.

    Raises:
        T1Error: no such file, or another form.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise T1Error(f"{path.name} must have at most {MOST_BYTES} bytes, but has {path.stat().st_size}")
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, T1Error):
            raise
        raise T1Error(f"{path} must be a T1 file in JSON, but got {error}") from error
    try:
        return read_space(document)
    except ValueError as error:
        raise T1Error(f"{path.name}: {error}") from error


def read_space(document: Any) -> ParameterSpace:
    """Builds the space that a T1 document describes.

    Raises:
        ValueError: another form.
    """
    general = _object(document, "a T1 file").get("General", {})
    found = _object(_object(document, "a T1 file").get("ConfigurationSpace"), "`ConfigurationSpace`")
    parameters = [_parameter(entry) for entry in _list(found.get("TuningParameters"), "`TuningParameters`")]
    conditions = [_object(entry, "a condition") for entry in _list(found.get("Conditions", []), "`Conditions`")]
    texts = [entry.get("Expression") for entry in conditions]
    if wrong := [text for text in texts if not isinstance(text, str)]:
        raise ValueError(f"`Expression` of a condition must be a text, but got {wrong[0]!r}")
    name = general.get("BenchmarkName") if isinstance(general, Mapping) else None
    restrictions = tuple(Restriction(str(text)) for text in texts)
    return ParameterSpace(str(name or "space"), tuple(parameters), restrictions)


def write_t1(space: ParameterSpace, path: Path) -> None:
    """Writes a space as `read_t1` reads it."""
    replace_file(path, (json.dumps(make_document(space), indent=2) + "\n").encode())


def make_document(space: ParameterSpace) -> dict[str, Any]:
    """Converts a space to a T1 document."""
    parameters = [
        {"Name": p.name, "Type": _type_name(p), "Values": repr(list(p.values)), "Default": p.values[0]}
        for p in space.parameters
    ]
    conditions = [{"Expression": r.text, "Parameters": list(r.names)} for r in space.restrictions]
    return {
        "General": {"BenchmarkName": space.name, "OutputFormat": "JSON"},
        "ConfigurationSpace": {"TuningParameters": parameters, "Conditions": conditions},
    }


def _type_name(parameter: Parameter) -> str:
    kinds = {type(value) for value in parameter.values}
    return next((name for name, kind in KINDS.items() if name != "uint" and kinds == {kind}), "float")


def _parameter(entry: Any) -> Parameter:
    given = _object(entry, "a parameter")
    name, kind, values = given.get("Name"), given.get("Type", "int"), given.get("Values")
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"`Name` of a parameter must be an identifier, but got {name!r}")
    if kind not in KINDS:
        raise ValueError(f"`Type` of {name} must be one of {', '.join(KINDS)}, but got {kind!r}")
    if isinstance(values, str):
        try:
            values = evaluate_list(values)
        except ExpressionError as error:
            raise ValueError(f"`Values` of {name}: {error}") from error
    return Parameter(name, tuple(_value(name, kind, value) for value in _list(values, f"`Values` of {name}")))


def _value(name: str, kind: str, value: Any) -> Value:
    wanted = KINDS[kind]
    allowed = (bool, int, float) if wanted in (float, bool, int) else (str,)
    if not isinstance(value, allowed) or wanted(value) != value:
        raise ValueError(f"`Values` of {name} must be of type {kind}, but got {value!r}")
    return wanted(value)


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} must be an object, but got {value!r:.80}")
    return value


def _list(value: Any, what: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{what} must be a list, but got {value!r:.80}")
    return value
