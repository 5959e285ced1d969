refused:
the declaration cannot be used: 1 error
headrace.yaml:17:24: error: pools.chat.parallel.tensor: is an option that llama.cpp does not have (found "4")
    Engines that have it: vllm, sglang, tensorrt-llm. Take it out, or use per_engine.
