"""Languages like C: one printer of loop programs, of which each language is a subclass."""
