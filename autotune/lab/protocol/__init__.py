"""The protocol of evaluation: what is measured is registered before, and test networks are looked at by one command."""

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
