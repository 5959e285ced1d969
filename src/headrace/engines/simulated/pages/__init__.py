"""Pages of metrics, one table per engine: the names, types and labels of the real ones, in the real ones' order."""
