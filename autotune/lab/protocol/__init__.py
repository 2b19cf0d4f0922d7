"""Protocol of evaluation: pools are registered before they are measured, and one command alone reads test networks."""

from autotune.lab.protocol.pools import POOLS, Pools, label_programs
from autotune.lab.protocol.registered import REGISTERED, ROLES, PoolTask, Registered, Role
from autotune.lab.protocol.study import HeldOut, Learned, Study, study

__all__ = [
    "POOLS",
    "REGISTERED",
    "ROLES",
    "HeldOut",
    "Learned",
    "PoolTask",
    "Pools",
    "Registered",
    "Role",
    "Study",
    "label_programs",
    "study",
]
