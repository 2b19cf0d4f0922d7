"""Accelerators: machines whose on-chip memories programs fill, and whose instructions work on these."""
