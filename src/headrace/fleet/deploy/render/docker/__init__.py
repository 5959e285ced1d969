"""`headrace render docker`: one shell script of `docker run` lines."""
