"""What an operator's monitoring is given: alert rules for Prometheus and a dashboard for Grafana. Starts nothing."""
