"""`compile`: from a decoder to two executables, of a prompt and of a step, which share weights, keys and values."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from autotune.graph.types import Array
from autotune.language.grouped import GroupedWeight
from autotune.language.model import LanguageModelError, Model, list_weights
from autotune.language.parts import PREFILL, STEP
from autotune.language.sampling import Sampler, greedy
from search_space.scratch import ScratchFolder
from targets.arrays import allocate_aligned
from targets.bundle import WEIGHTS, read_weights, writable, write_entries
from targets.manifest import MANIFEST, ExecutableError, digest, read_manifest, read_sealed
from targets.native_executable import FORMAT, NativeExecutable

KIND = "language"
"""Kind of the manifest of a language model."""
STATES = ("float32", "float16")
"""Dtypes in which keys and values can be stored."""
SHORTEST = 8
"""Least value of `longest`, the greatest length of a sequence."""


def compile(
    model: Model,
    longest: int | None = None,
    *,
    threads: int | None = None,
    precision: str = "float32",
    quantise: str | None = None,
    group: int = 32,
    symmetric: bool = True,
    activations: Literal["floats", "bytes"] = "floats",
    states: Literal["float32", "float16"] = "float32",
    cache: str | os.PathLike[str] | None = None,
) -> LanguageModel:
    """Compiles a decoder for this machine; its kernels are chosen without trials.

        network = autotune.language.compile(model, longest=1024)
        tokens = network.generate([464, 3290], 20)

    Args:
        model: decoder by `gpt2`, `llama` or `read_gguf`; its weights are not needed any more after compiling.
        longest: most tokens of a prompt and its continuation; None: the model's number of positions, or 2048 if it has
            no limit.
        threads: threads to choose kernels for, and to run them on; None: one for each core.
        precision: `float32`, `bfloat16` or `float16` of weights and factors, see docs/precision.md.
        quantise: `weights4` or `weights8`: weights of products in 4 or 8 bits, see docs/quantisation.md; None: as the
            model has them.
        group: weights along the sum that share a scale, where they are quantised.
        symmetric: whether they have no zero of their own.
        activations: `bytes` rounds the other factors of such weights, in blocks of 32 numbers; or `floats`.
        states: dtype in which keys and values are stored. In `float16` they take half the memory, and a step behind
            many tokens less time; each number is rounded by at most 2^-11 of itself.
        cache: folder of results of earlier compilations, or `none`; see `autotune.compile`.

    Raises:
        LanguageModelError: a length that the model does not take, `quantise` for weights of a few bits, an unknown
            dtype of `states`, or `float16` beside `precision` `bfloat16`.
        ValueError: an unknown `quantise`, an invalid group, or unknown `activations`.
        ConfigError, BuildError, RuntimeError: see `autotune.compile`.
    """
    if not isinstance(model, Model):
        raise LanguageModelError(
            f"`model` must be one that `gpt2`, `llama` or `read_gguf` gives, but got model={model!r:.80}"
        )
    known = model.sizes.positions
    longest = longest or known or 2048
    if not SHORTEST <= longest <= (known or longest):
        most = "" if known is None else f" and at most {known}, the positions that the model knows"
        raise LanguageModelError(f"`longest` must be at least {SHORTEST}{most}, but got longest={longest}")
    if quantise is not None and any(isinstance(weight, GroupedWeight) for weight in list_weights(model)):
        raise LanguageModelError(
            f"`quantise` must be None for a model with weights of a few bits, but got quantise={quantise!r}"
        )
    if states not in STATES:
        raise LanguageModelError(f"`states` must be {' or '.join(STATES)}, but got states={states!r}")
    if states == "float16" and precision == "bfloat16":
        raise LanguageModelError("`states` must be float32 if `precision` is bfloat16, but got states='float16'")
    from autotune.config import Quantisation
    from autotune.language.building import build_executables, make_options

    options = make_options(precision, quantise, Quantisation(group=group, symmetric=symmetric, activations=activations))
    scratch = ScratchFolder("language")
    folder = Path(scratch.name)
    place = None if cache is None else os.fspath(cache)
    weights = build_executables(model, longest, folder, threads, options, place, states)
    prefill, step = (NativeExecutable(folder / name, threads, weights=weights) for name in (PREFILL, STEP))
    weakref.finalize(step, scratch.cleanup)
    return LanguageModel(prefill, step)


def load(folder: str | os.PathLike[str], threads: int | None = None, mapped: bool = False) -> LanguageModel:
    """Loads the language model that `LanguageModel.save` wrote to a folder.

    Args:
        folder: folder of the model.
        threads: threads that kernels run on; by default those of compiling.
        mapped: whether weights are pages of the file, which processes share.

    Raises:
        ExecutableError: files that are missing, torn, of another schema or for another machine.
    """
    root = Path(folder)
    if not (root / MANIFEST).exists() and (root / "language.json").exists():
        return _load_earlier(root, threads, mapped)
    if (kind := read_sealed(root).get("kind")) != KIND:
        raise ExecutableError(f"{root / MANIFEST}: `kind` must be {KIND}, but got kind={kind!r:.80}")
    prefill = NativeExecutable(root, threads, mapped, entry=PREFILL)
    return LanguageModel(prefill, NativeExecutable(root, threads, mapped, prefill.weights, STEP))


def _load_earlier(folder: Path, threads: int | None, mapped: bool) -> LanguageModel:
    """Loads a folder of schema `autotune.language/1`: a folder of each executable, and the weights beside them."""
    facts = {name: read_manifest(folder / name, FORMAT)["weights"] for name in (PREFILL, STEP)}
    size, sha256 = facts[PREFILL]["nbytes"], facts[PREFILL]["sha256"]
    weights = read_weights(folder / WEIGHTS, size, sha256, mapped)
    if digest(weights[: facts[STEP]["nbytes"]].data) != facts[STEP]["sha256"]:
        raise ExecutableError(f"{folder / WEIGHTS}: weights must be those of the manifest, but they differ from it")
    prefill, step = (NativeExecutable(folder / name, threads, mapped, weights) for name in (PREFILL, STEP))
    return LanguageModel(prefill, step)


class LanguageModel:
    """A compiled decoder, and the keys and values of one sequence.

    Not for several threads at the same time: `another` gives each of them one.

    Args:
        prefill: executable of a prompt: inputs `tokens` and `last`, outputs logits, keys and values.
        step: executable of a token: inputs `token`, `position` and states, outputs logits and the states' last rows.

    Attributes:
        prefill_network, step_network: the executables.
        vocabulary: number of tokens.
        longest: tokens of a sequence at most.
        position: tokens of the sequence so far.
    """

    def __init__(self, prefill: NativeExecutable, step: NativeExecutable) -> None:
        self.prefill_network, self.step_network = prefill, step
        self.vocabulary = int(step.outputs[0].shape[1])
        ((self._least, self.longest),) = prefill.sizes.values()
        self.position = 0
        states = [p for p in step.inputs if p.name in {name for name, _ in step.manifest["states"]}]
        self._states = [allocate_aligned(p.shape, p.dtype) for p in states]
        self._rows = [state.nbytes // len(state) for state in self._states]
        self._token = allocate_aligned((1,), "int64")
        self._position = allocate_aligned((1,), "int64")
        self._tokens = allocate_aligned((self.longest,), "int64")

    def __repr__(self) -> str:
        """Formats a summary of a few lines for models of any size."""
        step = self.step_network
        return "\n".join(
            [
                f"LanguageModel of {self.vocabulary} tokens: {step.manifest['target']}, "
                f"{step.threads} thread{'s' * (step.threads != 1)}",
                f"  sequences: {self.longest} tokens at most, {self.position} so far",
                f"  kernels: {len(self.prefill_network.manifest['steps'])} steps for a prompt, "
                f"{len(step.manifest['steps'])} for a token",
                f"  memory: weights {self.weights_bytes / 1e6:.2f} MB, "
                f"keys and values {self.state_bytes / 1e6:.2f} MB a sequence",
            ]
        )

    def another(self) -> LanguageModel:
        """Returns a model of its own sequence that shares the executables and weights."""
        return LanguageModel(self.prefill_network, self.step_network)

    def prefill(self, tokens: Sequence[int] | Array) -> Array:
        """Begins a sequence with a prompt.

        Args:
            tokens: (n,) of the vocabulary, at least one and at most `longest`.

        Returns:
            Logits of the next token, (vocabulary,).

        Raises:
            LanguageModelError: other tokens.
        """
        prompt = self._check_tokens(tokens)
        count = max(len(prompt), self._least)
        self._tokens[: len(prompt)] = prompt
        self._tokens[len(prompt) : count] = 0
        self._position[0] = len(prompt) - 1
        logits = allocate_aligned((self.vocabulary,), "float32")
        arrays = [self._tokens, self._position, logits, *self._states]
        self.prefill_network.infer_at([int(a.ctypes.data) for a in arrays], [count])
        self.position = len(prompt)
        return logits

    def step(self, token: int) -> Array:
        """Adds a token to the sequence, and returns logits of the next one, (vocabulary,).

        Raises:
            LanguageModelError: no sequence has begun, it is as long as it may be, or the token is not of the
                vocabulary.
        """
        if not self.position:
            raise LanguageModelError("a step must follow a prompt, but none has been read")
        if self.position == self.longest:
            raise LanguageModelError(
                f"a sequence must have at most {self.longest} tokens, but another one is added to them"
            )
        self._token[0] = self._check_tokens([token])[0]
        self._position[0] = self.position
        logits = allocate_aligned((self.vocabulary,), "float32")
        states = [int(state.ctypes.data) for state in self._states]
        rows = [at + self.position * nbytes for at, nbytes in zip(states, self._rows, strict=True)]
        given = [int(a.ctypes.data) for a in (self._token, self._position)]
        self.step_network.infer_at([*given, *states, int(logits.ctypes.data), *rows], [self.position + 1])
        self.position += 1
        return logits

    def generate(
        self,
        tokens: Sequence[int] | Array,
        count: int,
        sampler: Sampler = greedy,
        stop: Callable[[int], bool] = lambda token: False,
    ) -> list[int]:
        """Generates tokens that follow a prompt.

        Args:
            tokens: tokens of the prompt, (n,).
            count: tokens at most.
            sampler: chooses each by its logits.
            stop: says of a token whether it is the last one; it is among the tokens given.

        Raises:
            LanguageModelError: tokens that are not of the vocabulary, or more than a sequence may have.
        """
        if count < 0:
            raise LanguageModelError(f"`count` must not be negative, but got count={count}")
        prompt = self._check_tokens(tokens)
        if len(prompt) + count > self.longest:
            raise LanguageModelError(
                f"a sequence must have at most {self.longest} tokens, but {count} are to follow {len(prompt)}"
            )
        return list(self._generate(prompt, count, sampler, stop))

    def _generate(self, tokens: Array, count: int, sampler: Sampler, stop: Callable[[int], bool]) -> Iterator[int]:
        logits = self.prefill(tokens)
        for number in range(count):
            token = sampler(logits)
            yield token
            if stop(token) or number + 1 == count:
                return
            logits = self.step(token)

    def _check_tokens(self, tokens: Sequence[int] | Array) -> Array:
        array = np.asarray(tokens)
        if array.ndim != 1 or not 1 <= len(array) <= self.longest or array.dtype.kind not in "iu":
            raise LanguageModelError(
                f"`tokens` must be 1 to {self.longest} whole numbers, but got {array.dtype} of shape {array.shape}"
            )
        if array.min() < 0 or array.max() >= self.vocabulary:
            worst = array.min() if array.min() < 0 else array.max()
            raise LanguageModelError(f"`tokens` must be from 0 to {self.vocabulary - 1}, but got {worst}")
        return array

    # ------------------------------------------------------------------ files
    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Writes the model to a folder, which `load` and `autotune.load` read, and returns the folder.

        Raises:
            ExecutableError: a folder that cannot be written, or one of the model's files was replaced meanwhile.
        """
        place = writable(folder)
        entries = {PREFILL: self.prefill_network, STEP: self.step_network}
        write_entries(entries, self.prefill_network.weights, KIND, place)
        return place

    @property
    def weights_bytes(self) -> int:
        """Bytes of the weights, which both executables share."""
        return int(self.prefill_network.weights.nbytes)

    @property
    def state_bytes(self) -> int:
        """Bytes of keys and values of a sequence of the greatest length."""
        return sum(state.nbytes for state in self._states)
