"""The C header of a saved training step: its states in memory, and functions that open, run, write and close them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from autotune.training.losses import NO_CLASS
from autotune.training.optimisers import LEARNING_RATE, STEP
from autotune.training.step import Slot
from search_space.dtypes import numpy_dtype
from targets.arrays import C_TYPE, round_up
from targets.cstyle.spelling import HEADER_NAMES, Identifiers, identifier
from targets.module import Parameter

if TYPE_CHECKING:
    from autotune.training.executable import TrainingExecutable

_OWN_NAMES = ("training", "learning_rate", "loss", "i")
"""Names in the function of a step, besides those of its arguments."""


def write_header(step: TrainingExecutable, network: str, file: str) -> str:
    """Writes the header of a step.

    Args:
        step: step, whose network replaces its states where they lie.
        network: folder of the network, relative to the header.
        file: file of the states, relative to the header.
    """
    name, batch = step.executable.name, step.inputs
    states = step.executable.inputs[len(batch) + len((LEARNING_RATE,)) :]
    upper, symbols = name.upper(), _name_distinctly(batch)
    members = dict(zip((state.name for state in states), _name_distinctly(states), strict=True))

    def each(text: str) -> str:
        return "\n".join(
            text.format(
                member=members[state.name],
                kind=C_TYPE[state.dtype],
                size=_nbytes(state),
                room=round_up(max(1, _nbytes(state)), 64),
                comment=_comment(state.name, state.shape),
            )
            for state in states
        )

    arguments = [f"const {C_TYPE[parameter.dtype]} *{symbol}" for parameter, symbol in zip(batch, symbols, strict=True)]
    places = [f"training->states.{members[state.name]}" for state in states]
    passed = [*symbols, "&learning_rate", *places, "loss", *places]
    counter = members[STEP]
    shapes = [_comment(symbol, parameter.shape) for parameter, symbol in zip(batch, symbols, strict=True)]
    total, separator = sum(map(_nbytes, states)), ",\n        "
    check = f"""  for (size_t i = 0; i < {math.prod(batch[0].shape)}; i++)
    if ({symbols[0]}[i] != {NO_CLASS} && ({symbols[0]}[i] < 0 || {symbols[0]}[i] >= {step.classes})) return -2;
"""
    return f"""#ifndef AUTOTUNE_{upper}_TRAINING_H
#define AUTOTUNE_{upper}_TRAINING_H
/* Training steps of {name}. Link with {network}/{name}.so and -pthread. One call on a {name}_training runs at a time.
   A batch is {", ".join(shapes)}; dense, row-major.
   Parameters in `states.parameters`, each after the index of its first element:
{chr(10).join(f"     {slot.offset}: {_describe_slot(name, slot)}" for name, slot in step.slots.items())} */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "{network}/{name}.h"

#define {upper}_STATES "{file}" /* file of the states, in the folder of this header */
#define {upper}_LEARNING_RATE {np.float32(step.optimiser.learning_rate):.9e}f

typedef struct {{
{each("  {kind} *{member}; /* {comment} */")}
}} {name}_states;

typedef struct {{
  {name}_network network;
  {name}_states states; /* which each step replaces */
}} {name}_training;

/* The number of steps so far. */
static inline int64_t {name}_training_steps(const {name}_training *training) {{ return *training->states.{counter}; }}

/* Frees what {name}_training_open took. */
static inline void {name}_training_close({name}_training *training) {{
{each("  free(training->states.{member});")}
  memset(&training->states, 0, sizeof training->states);
  {name}_close(&training->network);
}}

/* Reads the states that {name}_training_write or Python wrote; 0, or -1. */
static inline int {name}_training_read({name}_training *training, const char *file) {{
  FILE *stream = fopen(file, "rb");
  size_t got = 0;
  if (!stream) return -1;
{each("  got += fread(training->states.{member}, 1, {size}, stream);")}
  fclose(stream);
  return got == {total} ? 0 : -1;
}}

/* Writes the states to a file; 0, or -1. */
static inline int {name}_training_write(const {name}_training *training, const char *file) {{
  FILE *stream = fopen(file, "wb");
  size_t got = 0;
  if (!stream) return -1;
{each("  got += fwrite(training->states.{member}, 1, {size}, stream);")}
  return fclose(stream) == 0 && got == {total} ? 0 : -1;
}}

/* Opens the network and the states of a saved folder; 0, or -1 where a file is not theirs or memory is short. */
static inline int {name}_training_open({name}_training *training, const char *folder, int32_t threads) {{
  size_t size = strlen(folder) + sizeof "/{network}/{name}.weights" + sizeof {upper}_STATES;
  char *path = (char *)malloc(size);
  int failed = !path;
  memset(training, 0, sizeof *training);
  if (failed) return -1;
  snprintf(path, size, "%s/{network}/{name}.weights", folder);
  if ({name}_open(&training->network, path, threads)) {{
    free(path);
    return -1;
  }}
{each("  failed |= !(training->states.{member} = ({kind} *)aligned_alloc(64, {room}));")}
  snprintf(path, size, "%s/%s", folder, {upper}_STATES);
  failed = failed || {name}_training_read(training, path);
  free(path);
  if (failed) {name}_training_close(training);
  return failed ? -1 : 0;
}}

/* Runs a step on a batch and gives its loss; 0, or an error that changes nothing: -1 where memory is short, -2 where a
   target is no class. */
static inline int {name}_training_step({name}_training *training, {", ".join(arguments)},
                         float learning_rate, float *loss) {{
{"" if step.classes is None else check}  return {name}_infer(&training->network,
        {separator.join(passed)}) ? -1 : 0;
}}
#endif
"""


def _name_distinctly(parameters: Sequence[Parameter]) -> list[str]:
    """Returns distinct identifiers, none of them a keyword or a name of the functions above."""
    identifiers = Identifiers(*HEADER_NAMES.split(), *_OWN_NAMES)
    return [identifiers.fresh(identifier(parameter.name)) for parameter in parameters]


def _describe_slot(name: str, slot: Slot) -> str:
    """Shows a parameter as it lies in memory, and which of its axes these are if their order differs."""
    axes = f", its axes {', '.join(map(str, slot.axes))}" if slot.axes else ""
    return _comment(name, slot.stored_shape) + axes


def _nbytes(parameter: Parameter) -> int:
    return math.prod(parameter.shape) * numpy_dtype(parameter.dtype).itemsize


def _comment(name: str, shape: Sequence[int]) -> str:
    """Shows a name and a shape in a comment, which a name of a model must not end."""
    shown = " ".join(name.split()).replace("*/", "* /").replace("/*", "/ *")
    return f"{shown}[{', '.join(map(str, shape))}]"
