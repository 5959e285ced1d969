"""What an operator's monitoring is given: alert rules for Prometheus. Starts nothing and changes nothing."""
