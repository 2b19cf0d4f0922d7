"""Checks of a network's executable, and its times beside other runtimes."""
