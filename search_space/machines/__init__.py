"""Kinds of machines: a folder each, with its sketch rules and the limits on its programs."""
