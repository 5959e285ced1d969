"""llama.cpp, the embedded engine: `driver` says how to run and read it, `process` is the process that serves."""
