"""`compile`: from a decoder to two executables, of a prompt and of a step, which share weights, keys and values."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from autotune.graph.types import Array
from autotune.language.model import Model, ModelError
from autotune.language.parts import PREFILL, STEP
from autotune.language.sampling import Sampler, greedy
from search_space.files import replace_file
from search_space.scratch import ScratchFolder
from targets.arrays import aligned
from targets.manifest import ExecutableError, contents, files_of, write_manifest
from targets.native_executable import NativeExecutable

SCHEMA = "autotune.language/1"
MANIFEST, WEIGHTS = "language.json", "weights"
SHORTEST = 8
"""Of the greatest lengths of sequences."""


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
    cache: str | os.PathLike[str] | None = None,
) -> LanguageModel:
    """Compiles a decoder for this machine; its kernels are chosen without trials.

        network = autotune.language.compile(model, longest=1024)
        tokens = network.generate([464, 3290], 20)

    Args:
        model: as `gpt2` or `llama` gives it; its weights are not needed any more then.
        longest: tokens of a prompt and of what follows it at most; None: as many as the model has positions, and 2048
            where it has any number.
        threads: that the kernels are chosen for, and run on; None: one a core.
        precision: `float32`, `bfloat16` or `float16` of weights and of what is multiplied, see docs/precision.md. Keys
            and values are kept in float32.
        quantise: `weights4` or `weights8`: weights of products in 4 or 8 bits, see docs/quantisation.md; None: floats.
        group: weights along the sum that share a scale, where they are quantised.
        symmetric: whether they have no zero of their own.
        activations: `bytes` rounds what such weights are multiplied with, in blocks of 32 numbers; or `floats`.
        cache: folder of what compiling has found out before, or `none`; see `autotune.compile`.

    Raises:
        ModelError: a length that the model does not take.
        ValueError: an unknown `quantise`, a group that is none, or `activations` that are neither.
        ConfigError, BuildError, RuntimeError: as of `autotune.compile`.
    """
    if not isinstance(model, Model):
        raise ModelError(f"`model` must be one that `gpt2` or `llama` gives, but got model={model!r:.80}")
    known = model.sizes.positions
    longest = longest or known or 2048
    if not SHORTEST <= longest <= (known or longest):
        most = "" if known is None else f" and at most {known}, the positions that the model knows"
        raise ModelError(f"`longest` must be at least {SHORTEST}{most}, but got longest={longest}")
    from autotune.config import Quantisation
    from autotune.language.building import built, options_of

    options = options_of(precision, quantise, Quantisation(group=group, symmetric=symmetric, activations=activations))
    kept = ScratchFolder("language")
    folder = Path(kept.name)
    weights = built(model, longest, folder, threads, options, None if cache is None else os.fspath(cache))
    found = LanguageModel(*_executables(folder, threads, weights), weights)
    weakref.finalize(found.step_network, kept.cleanup)
    return found


def load(folder: str | os.PathLike[str], threads: int | None = None, mapped: bool = False) -> LanguageModel:
    """The language model that `LanguageModel.save` wrote to a folder.

    Args:
        threads: that kernels run on; by default what they were chosen for.
        mapped: whether weights are pages of the file, which processes share.

    Raises:
        ExecutableError: files that are missing, torn, of another schema or for another machine.
    """
    place = Path(folder)
    try:
        facts = json.loads((place / MANIFEST).read_bytes())
        schema, nbytes = facts["schema"], int(facts["weights"]["nbytes"])
    except OSError as error:
        raise ExecutableError(f"{place / MANIFEST}: a language model must have a manifest: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise ExecutableError(f"{place / MANIFEST}: a manifest must be an object of JSON, but it is not") from None
    if schema != SCHEMA:
        raise ExecutableError(f"{place / MANIFEST}: a manifest must be of schema {SCHEMA}, but got {schema!s:.80}")
    weights = _read(place / WEIGHTS, nbytes, mapped)
    prefill, step = _executables(place, threads, weights)
    for network in (prefill, step):
        facts = network.manifest["weights"]
        if hashlib.sha256(weights[: facts["nbytes"]].data).hexdigest() != facts["sha256"]:
            raise ExecutableError(f"{place / WEIGHTS}: weights must be those of the manifest, but they differ from it")
    return LanguageModel(prefill, step, weights)


class LanguageModel:
    """A compiled decoder, and the keys and values of one sequence.

    Not for several threads at the same time: `another` gives each of them one.

    Args:
        prefill: of a prompt: inputs `tokens` and `last`, outputs logits, keys and values.
        step: of a token: inputs `token`, `position` and states, outputs logits and the states' last rows.
        weights: of both, the bytes that lie in memory.

    Attributes:
        prefill_network, step_network: the executables.
        vocabulary: tokens that there are.
        longest: tokens of a sequence at most.
        position: tokens of the sequence so far.
    """

    def __init__(self, prefill: NativeExecutable, step: NativeExecutable, weights: Array) -> None:
        self.prefill_network, self.step_network, self._weights = prefill, step, weights
        self.vocabulary = int(step.outputs[0].shape[1])
        ((self._least, self.longest),) = prefill.sizes.values()
        self.position = 0
        states = [p for p in step.inputs if p.name in {name for name, _ in step.manifest["states"]}]
        self._states = [aligned(p.shape, p.dtype) for p in states]
        self._rows = [state.nbytes // len(state) for state in self._states]
        self._token = aligned((1,), "int64")
        self._place = aligned((1,), "int64")
        self._tokens = aligned((self.longest,), "int64")

    def __repr__(self) -> str:
        """A few lines, whatever the model's size."""
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
        """The same model with a sequence of its own; weights are in memory once."""
        return LanguageModel(self.prefill_network, self.step_network, self._weights)

    def prefill(self, tokens: Sequence[int] | Array) -> Array:
        """Begins a sequence with a prompt.

        Args:
            tokens: (n,) of the vocabulary, at least one and at most `longest`.

        Returns:
            Logits of what follows, (vocabulary,).

        Raises:
            ModelError: other tokens.
        """
        given = self._checked(tokens)
        count = max(len(given), self._least)
        self._tokens[: len(given)] = given
        self._tokens[len(given) : count] = 0
        self._place[0] = len(given) - 1
        logits = aligned((self.vocabulary,), "float32")
        arrays = [self._tokens, self._place, logits, *self._states]
        self.prefill_network.infer_at([int(a.ctypes.data) for a in arrays], [count])
        self.position = len(given)
        return logits

    def step(self, token: int) -> Array:
        """Adds a token to the sequence; logits of what follows it, (vocabulary,).

        Raises:
            ModelError: no sequence has begun, it is as long as it may be, or the token is not of the vocabulary.
        """
        if not self.position:
            raise ModelError("a step must follow a prompt, but none has been read")
        if self.position == self.longest:
            raise ModelError(f"a sequence must have at most {self.longest} tokens, but another one is added to them")
        self._token[0] = self._checked([token])[0]
        self._place[0] = self.position
        logits = aligned((self.vocabulary,), "float32")
        states = [int(state.ctypes.data) for state in self._states]
        rows = [at + self.position * nbytes for at, nbytes in zip(states, self._rows, strict=True)]
        given = [int(a.ctypes.data) for a in (self._token, self._place)]
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
        """Tokens that follow a prompt.

        Args:
            tokens: of the prompt, (n,).
            count: tokens at most.
            sampler: chooses each by its logits.
            stop: says of a token whether it is the last one; it is among the tokens given.

        Raises:
            ModelError: tokens that are not of the vocabulary, or more than a sequence may have.
        """
        if count < 0:
            raise ModelError(f"`count` must not be negative, but got count={count}")
        given = self._checked(tokens)
        if len(given) + count > self.longest:
            raise ModelError(
                f"a sequence must have at most {self.longest} tokens, but {count} are to follow {len(given)}"
            )
        return list(self._generated(given, count, sampler, stop))

    def _generated(self, tokens: Array, count: int, sampler: Sampler, stop: Callable[[int], bool]) -> Iterator[int]:
        logits = self.prefill(tokens)
        for number in range(count):
            token = sampler(logits)
            yield token
            if stop(token) or number + 1 == count:
                return
            logits = self.step(token)

    def _checked(self, tokens: Sequence[int] | Array) -> Array:
        found = np.asarray(tokens)
        if found.ndim != 1 or not 1 <= len(found) <= self.longest or found.dtype.kind not in "iu":
            raise ModelError(
                f"`tokens` must be 1 to {self.longest} whole numbers, but got {found.dtype} of shape {found.shape}"
            )
        if found.min() < 0 or found.max() >= self.vocabulary:
            worst = found.min() if found.min() < 0 else found.max()
            raise ModelError(f"`tokens` must be from 0 to {self.vocabulary - 1}, but got {worst}")
        return found

    # ------------------------------------------------------------------ files
    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Writes both executables and their weights to a folder, which `load` reads; the folder."""
        place = Path(folder)
        for name, network in ((PREFILL, self.prefill_network), (STEP, self.step_network)):
            (place / name).mkdir(parents=True, exist_ok=True)
            weights = network.manifest["weights"]["file"]
            for file, sha256 in files_of(network.manifest):
                if file != weights:
                    replace_file(place / name / file, contents(network.folder / file, sha256))
            write_manifest(network.manifest, place / name)
        replace_file(place / WEIGHTS, self._weights.data)
        facts: dict[str, Any] = {"schema": SCHEMA, "weights": {"file": WEIGHTS, "nbytes": self._weights.nbytes}}
        replace_file(place / MANIFEST, (json.dumps(facts, indent=2) + "\n").encode())
        return place

    @property
    def weights_bytes(self) -> int:
        """Of both executables."""
        return int(self._weights.nbytes)

    @property
    def state_bytes(self) -> int:
        """Of keys and values of a sequence of the greatest length."""
        return sum(state.nbytes for state in self._states)


def _executables(folder: Path, threads: int | None, weights: Array) -> tuple[NativeExecutable, NativeExecutable]:
    """Of the prompt and of a step, on the same weights."""
    prefill, step = (NativeExecutable(folder / name, threads, weights=weights) for name in (PREFILL, STEP))
    for network in (prefill, step):
        if network.weights_bytes > weights.nbytes:
            raise ExecutableError(f"{folder}: weights must have {network.weights_bytes} bytes, not {weights.nbytes}")
    return prefill, step


def _read(path: Path, nbytes: int, mapped: bool) -> Array:
    """Bytes of a file, on a 64-byte boundary."""
    try:
        with path.open("rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size != nbytes or not nbytes:
                raise ExecutableError(f"{path}: weights must be {nbytes} bytes, but are others")
            if mapped:
                return np.frombuffer(mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_READ), np.uint8)
            data = aligned((nbytes,), "uint8", np.empty)
            rest = data.data
            while got := file.readinto(rest):
                rest = rest[got:]
            return data
    except OSError as error:
        raise ExecutableError(f"{path}: a network must have its weights, but: {error.strerror}") from None
