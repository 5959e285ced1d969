refused:
error: pools.chat-prefill.disaggregation is not rendered for llama.cpp: its replicas share a folder, not a network
error: pools.chat-decode.disaggregation is not rendered for llama.cpp: its replicas share a folder, not a network
