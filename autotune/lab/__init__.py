"""The cost-model lab: models trained, compared and tuned on datasets, as `autotune costmodel` does."""
