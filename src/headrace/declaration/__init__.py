"""headrace.yaml: typed, validated, diffable. `model.py` is the shape, `load.py` reads a file into it."""
