"""Former names of modules of the laboratory, which work for one release."""

from __future__ import annotations

import pytest

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
