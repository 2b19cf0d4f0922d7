"""Features of decisions themselves, AutoTVM's knob features. They need no program, and fit one space only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from search_space.decisions import Space
from search_space.template import TemplateSpace


class KnobFeatures:
    """A function from candidates to the values of their decisions, in the same columns for all sketches of a space.

    Numbers have one column per decision variable (variables of one name in several sketches share it), log2(1 + value),
    0 if a sketch lacks the variable. Choices are 0 or 1. A template has a column for each value of a knob that is a
    choice, other spaces one for each sketch.

    Args:
        space: space of the candidates.

    Attributes:
        names: names of the features.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        variables = dict.fromkeys(name for sketch in space.sketches for name in sketch.columns)
        labels = [self._labels(sketch) for sketch in range(len(space.sketches))]
        every = list(dict.fromkeys(label for own in labels for label in own))
        chosen = [label for label in every if any(label not in own for own in labels)]
        self.names = (*variables, *chosen)
        place = {name: i for i, name in enumerate(variables)}
        self._positions = [np.array([place[name] for name in sketch.columns], np.intp) for sketch in space.sketches]
        self._choices = np.array([[label in own for label in chosen] for own in labels], np.float32)
        self._numbers = len(variables)

    def of_columns(self, sketch: int, columns: NDArray[np.float64]) -> NDArray[np.float32]:
        """Computes features of candidates from the values of their decision variables: (columns, n) → (n, features)."""
        out = np.zeros((columns.shape[1], len(self.names)), np.float32)
        out[:, self._positions[sketch]] = np.log2(1.0 + columns.T)
        out[:, self._numbers :] = self._choices[sketch]
        return out

    def __call__(self, sketch: int, choices: NDArray[np.int32]) -> NDArray[np.float32]:
        """Computes features of candidates of a sketch: (n, groups) → (n, features)."""
        return self.of_columns(sketch, self._space.sketches[sketch].expand(choices))

    def _labels(self, sketch: int) -> list[str]:
        if not isinstance(self._space, TemplateSpace):
            return [f"sketch={self._space.sketches[sketch].name}"]
        return [f"{name}={value}" for name, value in self._space.choices[sketch].items()]
