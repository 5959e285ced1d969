"""Fits the engine model to a real engine and holds its predictions against measurements: docs/simulation.md.

`python -m benchmarks.fit measure | fit | predict | compare`. Works on any server with OpenAI's completions API.
"""
