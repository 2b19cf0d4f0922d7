"""Runs of the command line: a configuration resolved to tasks, their tuning, and the run folder."""
