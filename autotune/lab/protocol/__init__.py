"""Protocol of evaluation: pools are registered before they are measured, and one command alone reads test networks."""

from autotune.lab.protocol.pools import POOLS, Pools, label_programs
from autotune.lab.protocol.registered import REGISTRATION_FILE, ROLES, PoolTask, Registered, Role
from autotune.lab.protocol.study import HeldOut, LearnedModel, Study, study

__all__ = [
    "POOLS",
    "REGISTRATION_FILE",
    "ROLES",
    "HeldOut",
    "LearnedModel",
    "PoolTask",
    "Pools",
    "Registered",
    "Role",
    "Study",
    "label_programs",
    "study",
]
