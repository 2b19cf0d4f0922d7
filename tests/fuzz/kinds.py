"""Kinds of fuzzed cases: how a case is drawn from a seed, checked, made smaller and written as text."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tests.fuzz import broadcasts, graphs, programs, streams

Case = dict[str, Any]
"""`kind`, `seed`, and `of`: the program as plain data, or the bytes of the model in base64."""


@dataclass(frozen=True)
class Kind:
    """One kind of case.

    Attributes:
        draw: seed → case, as plain data.
        check: function that raises where the case is wrong, and `Refused` where it cannot judge it.
        smaller: case → simpler cases.
    """

    draw: Callable[[int], Any]
    check: Callable[[Any, int], None]
    smaller: Callable[[Any], Iterator[Any]]


def _check_program(of: Any, seed: int) -> None:
    from tests.fuzz.schedules import check

    check(of, seed)


def _check_c(of: Any, seed: int) -> None:
    from tests.fuzz.schedules import check_c

    check_c(of, seed)


def _decode_model(text: str) -> onnx.ModelProto:
    return onnx.load_model_from_string(base64.b64decode(text))


def _text(model: onnx.ModelProto) -> str:
    return base64.b64encode(model.SerializeToString()).decode()


def _check_model(of: str, seed: int) -> None:
    from tests.fuzz.networks import check

    check(_decode_model(of), seed)


def _smaller_models(of: str) -> Iterator[str]:
    from tests.fuzz.networks import smaller

    return map(_text, smaller(_decode_model(of)))


def _draw_operator(seed: int) -> Any:
    from tests.fuzz.operators import draw

    return draw(seed)


def _check_operator(of: Any, seed: int) -> None:
    from tests.fuzz.operators import check

    check(of, seed)


def _smaller_operators(of: Any) -> Iterator[Any]:
    from tests.fuzz.operators import smaller

    return smaller(of)


def _draw_special(seed: int) -> str:
    from tests.fuzz.special import draw

    return _text(draw(np.random.default_rng(seed)))


def _check_special(of: str, seed: int) -> None:
    from tests.fuzz.special import check

    check(_decode_model(of), seed)


def _models(generator: Callable[[np.random.Generator], onnx.ModelProto]) -> Kind:
    return Kind(lambda seed: _text(generator(np.random.default_rng(seed))), _check_model, _smaller_models)


KINDS: dict[str, Kind] = {
    "program": Kind(programs.draw, _check_program, programs.smaller),
    "broadcast": Kind(broadcasts.draw, broadcasts.check, programs.smaller),
    "c": Kind(programs.draw, _check_c, programs.smaller),
    **{name: _models(generator) for name, generator in graphs.GENERATORS.items()},
    "special": Kind(_draw_special, _check_special, _smaller_models),
    "torch": Kind(_draw_operator, _check_operator, _smaller_operators),
    "stream": Kind(lambda seed: None, streams.check, lambda of: iter(())),
}


def draw_case(kind: str, seed: int) -> Case:
    """The case of a seed."""
    return {"kind": kind, "seed": seed, "of": KINDS[kind].draw(seed)}
