"""Rules for stages that several kinds of machines schedule alike, and properties of definitions that rules check."""
