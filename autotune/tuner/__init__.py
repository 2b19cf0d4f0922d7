"""Tuning: tasks, cost models of a search, rounds of trials, and their results."""
