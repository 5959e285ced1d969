"""The programs that are measured, one file each; `table.py` lists them."""
