"""CPUs: cores with vector registers and caches that fill themselves."""
