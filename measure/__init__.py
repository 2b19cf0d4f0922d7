"""Measuring: isolated, checked and repeated timing of candidates, and the records that outlive a run."""
