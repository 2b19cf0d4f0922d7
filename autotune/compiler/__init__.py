"""Networks: from a model to tasks, and from their records to an executable that is checked and timed."""
