"""`headrace observe dashboard`: a dashboard for Grafana. One module per row; `grafana.py` makes the file of them."""
