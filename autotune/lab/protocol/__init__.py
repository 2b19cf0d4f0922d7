"""Protocol of evaluation: pools are registered before they are measured, and one command alone reads test networks."""

from autotune.lab.protocol.pools import POOLS, Pools, labels_of
from autotune.lab.protocol.registered import REGISTERED, ROLES, PoolTask, Registered, Role
from autotune.lab.protocol.study import Held, Learned, Study, study

__all__ = [
    "POOLS",
    "REGISTERED",
    "ROLES",
    "Held",
    "Learned",
    "PoolTask",
    "Pools",
    "Registered",
    "Role",
    "Study",
    "labels_of",
    "study",
]
