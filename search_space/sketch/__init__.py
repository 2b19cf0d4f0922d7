"""Sketches: schedules with decision variables, derived by rules."""
