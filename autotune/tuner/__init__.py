"""Tuning: tasks, what a search goes by, rounds of trials, and what they come to."""
