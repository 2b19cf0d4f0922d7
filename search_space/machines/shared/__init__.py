"""Rules for stages that several kinds of machines schedule alike, and what their rules ask of a definition."""
