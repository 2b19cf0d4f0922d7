"""Collecting datasets: many small tasks, half of their programs drawn at random, half proposed by searches."""
