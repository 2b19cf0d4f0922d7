"""Tests; a package, so that no other one of this name stands before it."""
