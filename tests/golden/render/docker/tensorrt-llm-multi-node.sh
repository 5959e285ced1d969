refused:
error: pools.chat.placement.gpus_per_node spreads a replica over 2 nodes, and this target writes for one machine. Use `headrace render kubernetes`
