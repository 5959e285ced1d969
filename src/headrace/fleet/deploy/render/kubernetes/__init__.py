"""`headrace render kubernetes`: plain objects for kubectl, or with --split a base and overlays for kustomize."""
