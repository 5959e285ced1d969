"""The decision, pure: prompts as chains of hashes, who holds them, learned speeds, costs, the pick."""
