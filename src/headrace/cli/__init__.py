"""The command line: `main.py` holds the table of verbs, one thin module each."""
