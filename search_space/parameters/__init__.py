"""Spaces of named parameters with restrictions: those that other tuners search, in files of the community's formats."""

from search_space.parameters.expression import ExpressionError, Restriction
from search_space.parameters.space import Parameter, ParameterSpace
from search_space.parameters.t1 import T1Error, read_t1, write_t1

__all__ = ["ExpressionError", "Parameter", "ParameterSpace", "Restriction", "T1Error", "read_t1", "write_t1"]
