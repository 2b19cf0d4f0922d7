"""Cost models by name, imported on first use. A new one is a file and a line here.

A user's own model needs no line: its name is `module:Class`, or `FILE.py:Class` with the path of its file.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from costmodel.models.base import CostModel
from costmodel.models.errors import CostModelError
from costmodel.models.saving import check_saving
from search_space.extras import require
from search_space.operators.checks import choice, nearest
from search_space.user_code import absolute_name, attribute, is_own

MODELS: dict[str, str] = {
    "attention": "costmodel.models.attention:AttentionModel",
    "lightgbm": "costmodel.models.lightgbm_model:LightGBMModel",
    "lightgbm_pairwise": "costmodel.models.lightgbm_rank:PairwiseModel",
    "lightgbm_lambdarank": "costmodel.models.lightgbm_rank:LambdaRankModel",
    "lightgbm_residual": "costmodel.models.lightgbm_residual:ResidualModel",
    "ridge": "costmodel.models.ridge:RidgeModel",
    "random_forest": "costmodel.models.random_forest:RandomForestModel",
    "matern": "costmodel.models.gaussian_process:MaternModel",
    "mlp": "costmodel.models.mlp:MLPModel",
    "sklearn": "costmodel.models.sklearn_model:SklearnModel",
    "gaussian_process": "costmodel.models.gaussian_process:GaussianProcessModel",
    "ensemble": "costmodel.models.ensemble:EnsembleModel",
    "roofline": "costmodel.models.roofline:RooflineModel",
    "random": "costmodel.models.random_model:RandomModel",
}

_FITTED_BY: dict[str, str] = {
    **dict.fromkeys(("matern", "ridge", "random_forest", "mlp", "gaussian_process"), "sklearn"),
    **dict.fromkeys(("lightgbm", "lightgbm_pairwise", "lightgbm_lambdarank", "lightgbm_residual"), "lightgbm"),
}
"""Model → the module of an extra that it is fitted by."""

_OWN: dict[
    str, type[CostModel]
] = {}  # class by `absolute_name` its name, for models outside the package asked for so far


def get(name: str) -> type[CostModel]:
    """Finds the model class of a name; runs the code of a user's own model, `module:Class` or `FILE.py:Class`.

    A module is searched for on Python's path, and in the working directory.

    Raises:
        CostModelError: no model has this name; names the nearest one.
    """
    if is_own(name):
        place = absolute_name(name)
        if place not in _OWN:
            _OWN[place] = _own(name)
        return _OWN[place]
    chosen = MODELS[choice("cost_model", name, MODELS, ", or module:Class", CostModelError)]
    module, _, attribute = chosen.partition(":")
    kind: type[CostModel] = getattr(importlib.import_module(module), attribute)
    return kind


def model_name(kind: str | type[CostModel]) -> str:
    """Returns a name by which `get` finds a class, wherever it is defined; a name is returned unchanged.

    Raises:
        CostModelError: it is not a subclass of `CostModel`.
    """
    if isinstance(kind, str):
        return kind
    if not isinstance(kind, type) or not issubclass(kind, CostModel):
        raise CostModelError(
            "`cost_model` must be a name, a subclass of CostModel or an object of one (`SklearnModel` takes estimators "
            f"of scikit-learn), but got cost_model={kind!r:.200}"
        )
    path = f"{kind.__module__}:{kind.__qualname__}"
    if path in MODELS.values():
        return next(name for name, of in MODELS.items() if of == path)
    _OWN[path] = kind
    return path


def read_options(model: CostModel) -> dict[str, Any]:
    """Reads the options for making another model like this one, without the seed and the learned state.

    Raises:
        CostModelError: an option of its class is not an attribute of that name.
    """
    options: dict[str, Any] = {}
    for name, parameter in inspect.signature(type(model)).parameters.items():
        if name == "seed":
            continue
        if not hasattr(model, name):
            raise CostModelError(
                f"a model that is given as an object must keep its options as attributes, but {type(model).__name__} "
                f"has no {name!r}"
            )
        value = getattr(model, name)
        if parameter.kind is parameter.VAR_KEYWORD:
            options |= value
        elif value != parameter.default:
            options[name] = value
    return options


def takes_seed(name: str) -> bool:
    """Tells whether the model takes a seed.

    Raises:
        CostModelError: no model has this name.
    """
    return "seed" in inspect.signature(get(name)).parameters


def make(name: str, options: Mapping[str, Any], seed: int) -> CostModel:
    """Makes the model `name` with its options; `seed` is passed to a model that takes one.

    A user's own model must first save and load its learned state on a few rows. A search would waste hours on a model
    that cannot be stored. For the package's models this is part of their contract.

    Raises:
        CostModelError: the model, an option or its value is unknown or refused, or the learned state cannot be saved.
        MissingExtra: packages that fit the model are not installed.
    """
    kind = get(name)
    parameters = inspect.signature(kind).parameters
    named = [key for key, parameter in parameters.items() if parameter.kind is not parameter.VAR_KEYWORD]
    for option in options if len(named) == len(parameters) else ():
        if option not in parameters:
            raise CostModelError(
                f"`{name}` must have options among {', '.join(parameters) or 'none'}, "
                f"but got {option!r}{nearest(option, parameters)}"
            )
    for option, value in options.items():
        _check_type(option, value, parameters[option].default if option in parameters else None)
    seeded = {"seed": seed} if "seed" in parameters else {}
    try:
        model: CostModel = kind(**{**seeded, **options})
    except ValueError as error:
        raise CostModelError(f"{name}: {error}") from error
    if name in _FITTED_BY:
        require(f"the cost model {name}", _FITTED_BY[name])
    if name not in MODELS:
        check_saving(name, kind, {**seeded, **options})
    return model


def _check_type(option: str, value: Any, default: Any) -> None:
    """Refuses a value of another type than the option's default, if the default tells the type."""
    if not isinstance(default, bool | int | float | str):
        return
    allowed = (int, float) if isinstance(default, float) else (type(default),)
    if not isinstance(value, allowed) or isinstance(value, bool) != isinstance(default, bool):
        raise CostModelError(f"`{option}` must be of type {type(default).__name__}, but got {option}={value!r}")


def get_trusted(name: str) -> type[CostModel]:
    """Finds the model class of a name read from a file, as `get` does, but runs no code that was not asked for before.

    Raises:
        CostModelError: no model has this name, or it is a user's own that this process has not asked for.
    """
    if name in MODELS or not is_own(name):
        return get(name)
    if absolute_name(name) not in _OWN:
        raise CostModelError(
            f"a model of one's own must be asked for by its name before its file is read, for that runs its code, "
            f"but got cost_model={name!r}"
        )
    return _OWN[absolute_name(name)]


def remake(name: str, options: Mapping[str, Any], seed: int) -> CostModel:
    """Makes a model of a name and options read from a file, without running code that was not asked for before.

    Raises:
        CostModelError: see `make` and `get_trusted`, which also applies to models named among the options.
    """
    get_trusted(name)
    for text in _texts(options):
        if is_own(text):
            get_trusted(text)
    return make(name, options, seed)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _own(name: str) -> type[CostModel]:
    kind = attribute(name, "cost_model", CostModelError)
    if not isinstance(kind, type) or not issubclass(kind, CostModel):
        raise CostModelError(f"`cost_model` must name a subclass of CostModel, but got cost_model={name!r}")
    return kind
