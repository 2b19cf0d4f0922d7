"""What can be wrong with a cost model that a user asks for."""

from __future__ import annotations


class ModelError(ValueError):
    """No such model or option, a file that is none of a model's, or nothing to learn from; one sentence says which."""
