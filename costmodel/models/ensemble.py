"""An ensemble of models, each trained on a part of the programs: uncertain if they disagree."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from costmodel.models import registry
from costmodel.models.base import CostModel, Scores, UncertainModel, check_lengths, need_fit
from costmodel.models.errors import CostModelError
from costmodel.models.tunable import Range, Tunable
from search_space.files import replace_file
from search_space.scratch import ScratchFolder


class EnsembleModel(UncertainModel):
    """An ensemble that predicts the mean of its members' scores; each learns a share, drawn without replacement.

    Args:
        seed: seed of the draws and of the members.
        member: name of the members' model.
        members: number of members.
        share: share of the programs that each member learns from.
        options: options of the members.
    """

    tunable: ClassVar[Mapping[str, Tunable]] = {"members": Range(2, 8), "share": Range(0.4, 0.95)}

    def __init__(
        self, seed: int = 0, member: str = "lightgbm", members: int = 4, share: float = 0.75, **options: Any
    ) -> None:
        if members < 2 or not 0 < share <= 1:
            raise ValueError(
                f"`members` must be at least 2 and `share` in (0, 1], but got members={members}, share={share}"
            )
        self.seed, self.member, self.members, self.share, self.options = seed, member, members, share, options
        registry.make(member, options, seed)  # refuses invalid members early
        self._models: list[CostModel] | None = None

    def fit(self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
        check_lengths(features, throughput)
        self._fit(len(features), lambda model, rows: model.fit([features[i] for i in rows], throughput[rows]))

    def fit_tasks(
        self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64], groups: NDArray[np.int64]
    ) -> None:
        check_lengths(features, throughput)
        self._fit(
            len(features),
            lambda model, rows: model.fit_tasks([features[i] for i in rows], throughput[rows], groups[rows]),
        )

    def predict_with_deviation(self, features: NDArray[np.float32]) -> tuple[Scores, Scores]:
        """Predicts the mean and the standard deviation over the members."""
        scores = [model.predict(features) for model in need_fit(self._models)]
        total = np.zeros(len(features))
        for of in scores:
            total += of
        mean, squares = total / len(scores), np.zeros(len(features))
        for of in scores:
            squares += (of - mean) ** 2
        return mean, np.sqrt(squares / len(scores))

    def save(self, path: Path) -> None:
        """Writes the members' files, as texts of a JSON document."""
        texts = []
        with ScratchFolder("ensemble") as folder:
            for i, model in enumerate(need_fit(self._models)):
                place = Path(folder) / f"{i}.txt"
                model.save(place)
                texts.append(place.read_text().splitlines(keepends=True))
        document = {"model": "ensemble", "member": self.member, "options": self.options, "members": texts}
        replace_file(path, (json.dumps(document, indent=0) + "\n").encode())

    def load(self, path: Path) -> None:
        """Reads the file that `save` wrote, with the members' model that it names."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["model"] != "ensemble":
                raise ValueError(f"it is of a model {document['model']!r}")
            member, options = str(document["member"]), dict(document["options"])
            texts = ["".join(lines) for lines in document["members"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CostModelError(f"{path}: a saved ensemble must be whole, but {error!r}") from None
        learned = []
        with ScratchFolder("ensemble") as folder:
            for i, text in enumerate(texts):
                place = Path(folder) / f"{i}.txt"
                place.write_text(text)
                learned.append(registry.remake(member, options, self.seed))
                learned[-1].load(place)
        self.member, self.options, self.members, self._models = member, options, len(learned), learned

    def _fit(self, count: int, fit: Callable[[CostModel, NDArray[np.int64]], None]) -> None:
        if not count:
            return
        learned = []
        for i in range(self.members):
            drawn = np.random.default_rng([self.seed, i]).permutation(count)[: max(1, round(count * self.share))]
            model = registry.make(self.member, self.options, self.seed * self.members + i)
            fit(model, np.sort(drawn))
            learned.append(model)
        self._models = learned
