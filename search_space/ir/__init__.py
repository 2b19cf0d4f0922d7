"""The intermediate representation: expressions, statements, their arithmetic and their meaning."""
