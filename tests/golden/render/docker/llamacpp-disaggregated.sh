refused:
the declaration cannot be used: 2 errors
headrace.yaml:17:28: error: pools.chat-prefill.disaggregation.role: is an option that llama.cpp does not have (found "prefill")
    Engines that have it: vllm, sglang, tensorrt-llm. Take it out, or use per_engine.
headrace.yaml:17:28: warning: pools.chat-prefill.disaggregation.role: is prefill, but the gateway does not lead requests from prefill to decode yet (found "prefill")
    It takes the pool for an ordinary one; a router that does can stand before the engines: docs/limits.md.
headrace.yaml:25:28: error: pools.chat-decode.disaggregation.role: is an option that llama.cpp does not have (found "decode")
    Engines that have it: vllm, sglang, tensorrt-llm. Take it out, or use per_engine.
headrace.yaml:25:28: warning: pools.chat-decode.disaggregation.role: is decode, but the gateway does not lead requests from prefill to decode yet (found "decode")
    It takes the pool for an ordinary one; a router that does can stand before the engines: docs/limits.md.
