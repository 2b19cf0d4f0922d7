"""Networks: from a model to tasks, and from their records to a checked and timed executable."""
