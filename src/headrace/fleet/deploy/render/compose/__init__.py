"""`headrace render compose`: one compose.yaml (Compose Specification; Docker Compose 2.24 or newer)."""
