"""What a run has come to, for people: tables and progress on the terminal, figures, a page of HTML."""
