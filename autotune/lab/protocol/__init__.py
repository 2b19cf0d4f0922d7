"""Protocol of evaluation: pools are registered before they are measured, and one command alone reads test networks."""

from typing import TYPE_CHECKING

from autotune.lab.protocol.pools import POOLS, Pools, label_programs
from autotune.lab.protocol.registered import REGISTRATION_FILE, ROLES, PoolTask, Registration, Role
from autotune.lab.protocol.study import HeldOut, LearnedModel, Study, study
from search_space.former_names import former_attributes

__all__ = [
    "POOLS",
    "REGISTRATION_FILE",
    "ROLES",
    "HeldOut",
    "LearnedModel",
    "PoolTask",
    "Pools",
    "Registration",
    "Role",
    "Study",
    "label_programs",
    "study",
]


if not TYPE_CHECKING:
    __getattr__ = former_attributes(__name__, {"Registered": "Registration"})
