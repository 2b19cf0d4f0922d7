"""Targets: from loop programs to code that runs. Each folder is one kind of machine; siblings never import each other."""
