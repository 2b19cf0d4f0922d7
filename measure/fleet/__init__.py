"""Measuring on many machines: endpoints that build or run, and one scheduler that keeps them busy."""
