"""The tests, as a package, so that no other package named `tests` shadows it."""
