"""Schedules: immutable states, the steps that transform them, and traces that replay."""
