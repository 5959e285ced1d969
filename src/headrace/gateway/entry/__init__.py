"""Step 1 of the request: bytes to an InferenceRequest, or a refusal that says which value is wrong."""
