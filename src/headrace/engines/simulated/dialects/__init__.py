"""The engines' languages: a module per engine, and `contract.py`, what the server asks of each."""
