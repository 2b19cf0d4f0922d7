"""Datasets in numbers, and measured spaces: results of other tuners, and of tasks as configurations of parameters."""
