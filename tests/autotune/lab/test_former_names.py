"""Former names of modules of the laboratory, which work for one release."""

from __future__ import annotations

from typing import cast

import pytest

from autotune.lab import protocol
from autotune.lab.protocol import HeldOut, LearnedModel, Study
from autotune.lab.protocol.study import Rankings
from tests.test_former_names import check_former_name

NAMES = {
    "autotune.collect": "autotune.lab.collect",
    "autotune.graph.substitutions": "autotune.lab.substitutions",
    "costmodel.dataset.t4": "autotune.lab.dataset.t4",
    "costmodel.evaluate": "autotune.lab.evaluate",
    "costmodel.protocol": "autotune.lab.protocol",
    "costmodel.sequences.ansor": "autotune.lab.sequences.ansor",
}


@pytest.mark.parametrize("former", NAMES)
def test_a_former_name_is_the_module_with_a_warning(former: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_former_name(former, NAMES[former], monkeypatch)


def test_former_names_of_the_protocol_are_the_new_ones_with_a_warning() -> None:
    model = LearnedModel("ridge", {}, cast(Rankings, "rankings"), 0.0, 0.0)
    with pytest.warns(DeprecationWarning, match="^LearnedModel.ranked is now rankings$"):
        assert model.ranked == "rankings"
    with pytest.warns(DeprecationWarning, match="^Study.learned is now models$"):
        assert Study(cast(HeldOut, None), "", {"ridge": model}, 1).learned == {"ridge": model}
    with pytest.warns(DeprecationWarning, match="^autotune.lab.protocol.Registered is now Registration$"):
        assert vars(protocol)["__getattr__"]("Registered") is protocol.Registration
