"""Reports of runs for people: tables and progress on the terminal, figures, a page of HTML."""
