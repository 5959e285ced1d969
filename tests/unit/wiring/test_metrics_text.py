"""Several workers' metrics are one text."""

from headrace.wiring.metrics_text import merge_metrics, own_metrics

ONE = """# HELP headrace_requests_total Requests.
# TYPE headrace_requests_total counter
headrace_requests_total{model="a"} 3.0
# HELP headrace_ttft_seconds Time.
# TYPE headrace_ttft_seconds histogram
headrace_ttft_seconds_bucket{le="1.0",model="a"} 2.0
headrace_ttft_seconds_bucket{le="+Inf",model="a"} 3.0
headrace_ttft_seconds_count{model="a"} 3.0
headrace_ttft_seconds_sum{model="a"} 4.5
# HELP headrace_gateway_process_start_time_seconds Start.
# TYPE headrace_gateway_process_start_time_seconds gauge
headrace_gateway_process_start_time_seconds 100.0
"""
TWO = ONE.replace('model="a"', 'model="b"', 1).replace(" 100.0", " 90.0")


def test_one_worker_is_passed_on() -> None:
    """Every series of a single worker is there, unchanged."""
    merged = merge_metrics([ONE])
    assert all(line in merged for line in ONE.splitlines())


def test_series_of_several_workers_add_up() -> None:
    """Counters and buckets of the same labels are added, others stand beside each other, a start time is the first."""
    merged = merge_metrics([ONE, TWO])
    assert 'headrace_requests_total{model="a"} 3.0' in merged
    assert 'headrace_requests_total{model="b"} 3.0' in merged
    assert 'headrace_ttft_seconds_bucket{le="+Inf",model="a"} 6.0' in merged
    assert 'headrace_ttft_seconds_sum{model="a"} 9.0' in merged
    assert "headrace_gateway_process_start_time_seconds 90.0" in merged


def test_the_supervisors_own_metrics_are_added() -> None:
    """Restarts and the ledger's lag are known to the supervisor alone."""
    merged = merge_metrics([ONE], own_metrics([], gateway_restarts=2, ledger_waiting_records=7))
    assert "headrace_gateway_restarts_total 2.0" in merged
    assert "headrace_ledger_lag_records 7.0" in merged


def test_what_all_workers_know_alike_is_shown_once() -> None:
    """A budget that two workers share, and the loss of their store, are not added up."""
    first = "# TYPE headrace_budget_used gauge\nheadrace_budget_used 40.0\n# TYPE headrace_sharing_members gauge\n"
    second = first.replace("40.0", "41.5")
    merged = merge_metrics([first + "headrace_sharing_members 2.0\n", second + "headrace_sharing_members 2.0\n"])
    assert "headrace_budget_used 41.5" in merged
    assert "headrace_sharing_members 2.0" in merged


def test_what_an_engine_tells_every_worker_is_shown_once() -> None:
    """Two workers hear of the same evictions and the same load; what each has sent adds up."""
    page = (
        "# TYPE headrace_kv_events_removed_blocks_total counter\n"
        'headrace_kv_events_removed_blocks_total{{endpoint="p/0"}} {removed}\n'
        "# TYPE headrace_pool_running_requests gauge\n"
        'headrace_pool_running_requests{{pool="p",role="both"}} 5.0\n'
        "# TYPE headrace_pool_held_tokens gauge\n"
        'headrace_pool_held_tokens{{pool="p",role="both"}} 100.0\n'
    )
    merged = merge_metrics([page.format(removed=7), page.format(removed=6)])
    assert 'headrace_kv_events_removed_blocks_total{endpoint="p/0"} 7.0' in merged
    assert 'headrace_pool_running_requests{pool="p",role="both"} 5.0' in merged
    assert 'headrace_pool_held_tokens{pool="p",role="both"} 200.0' in merged
