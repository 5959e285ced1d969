"""The playbooks of a hand-over, and what they are told and say: pure, without clock or socket."""
