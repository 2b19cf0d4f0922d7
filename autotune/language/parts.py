"""The two executables of a decoder: their names, and the least number of rows of a prompt."""

from __future__ import annotations

PREFILL, STEP = "prefill", "step"

LEAST = 16
"""Rows that a prompt is computed as at least, as weights have to be read for one row as for these.

Rows after the prompt belong to no token: no earlier row reads them, and their keys and values are overwritten before
they are read.
"""
