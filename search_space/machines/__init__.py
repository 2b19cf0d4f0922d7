"""Kinds of machines: a folder each, with the sketch rules for it and the limits of what its programs take."""
