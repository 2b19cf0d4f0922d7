"""What languages like C have in common: one printer of loop programs, of which each language is a subclass."""
