refused:
error: pools.chat.placement.gpus_per_node is 8, but llama.cpp does not spread over nodes
