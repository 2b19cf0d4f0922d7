"""The protocol of evaluation: what is measured is registered before, and test networks are looked at by one command."""

from costmodel.protocol.registered import REGISTERED, ROLES, PoolTask, Registered, Role

__all__ = ["REGISTERED", "ROLES", "PoolTask", "Registered", "Role"]
