"""Targets: from loop programs to code that runs, a folder a kind of machine; siblings never import each other."""
