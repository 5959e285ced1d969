"""TensorRT-LLM: see `driver`."""
