"""`headrace render`: the declaration written as files for Docker, compose, systemd and Kubernetes.

`core/` makes the neutral model; each target has a package that writes it. Nothing here starts anything.
"""
