"""An engine's page of metrics becomes numbers by purpose."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from headrace.engines.llamacpp.metrics import METRICS as LLAMACPP
from headrace.engines.load import EngineLoad, Histogram, iter_names, read_load
from headrace.engines.metrics import MetricTable, Purpose
from headrace.engines.sglang.metrics import METRICS as SGLANG
from headrace.engines.tensorrt_llm.metrics import METRICS as TENSORRT_LLM
from headrace.engines.vllm.metrics import METRICS as VLLM

VLLM_PAGE = """\
# HELP vllm:num_requests_running Running.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:cache_config_info{engine="0",block_size="16",kv_cache_size_tokens="46592",hash_block_size="None"} 1.0
vllm:cache_config_info{engine="1",block_size="16",kv_cache_size_tokens="46592",hash_block_size="None"} 1.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 200.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 50.0
vllm:prompt_tokens_cached_by_source_total{engine="0",source="device"} 40.0
vllm:prompt_tokens_cached_by_source_total{engine="0",source="host"} 10.0
vllm:request_success_total{engine="0",finished_reason="stop"} 5.0
vllm:request_success_total{engine="0",finished_reason="length"} 2.0
vllm:request_success_total{engine="0",finished_reason="abort"} 3.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0"} 3.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 4.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.1"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="1.0"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf"} 1.0
vllm:time_to_first_token_seconds_count{engine="0"} 4.0
vllm:time_to_first_token_seconds_count{engine="1"} 1.0
vllm:time_to_first_token_seconds_sum{engine="0"} 5.5
vllm:time_to_first_token_seconds_sum{engine="1"} 0.5
"""


def test_ranks_of_data_parallel_vllm_are_added_and_the_fullest_cache_counts() -> None:
    """Two engines behind one server are one load: requests add up, KV use is that of the fuller one."""
    load = read_load(VLLM_PAGE, VLLM)
    assert (load.running, load.waiting, load.kv_utilization_ratio) == (7.0, 2.0, 0.75)
    assert load.values[Purpose.KV_CAPACITY] == 2 * 46592
    assert load.prefix_hit_ratio == 0.25


def test_an_abort_is_no_success_whatever_the_metric_is_called() -> None:
    """vLLM counts aborted requests under request_success: they are failures here."""
    load = read_load(VLLM_PAGE, VLLM)
    assert load.values[Purpose.SUCCEEDED] == 7.0
    assert load.values[Purpose.FAILED] == 3.0
    assert load.parts[Purpose.SUCCEEDED] == {"stop": 5.0, "length": 2.0}


def test_cached_tokens_are_told_apart_by_their_source() -> None:
    """An operator sees which tier a cached prompt came from, and which part came from below the device."""
    load = read_load(VLLM_PAGE, VLLM)
    assert load.parts[Purpose.CACHED_TOKENS] == {"device": 40.0, "host": 10.0}
    assert load.values[Purpose.OFFLOAD_HITS] == 10.0


def test_a_histogram_is_read_over_all_series() -> None:
    """Time to first token of a server with two engines is one distribution."""
    histogram = read_load(VLLM_PAGE, VLLM).histograms[Purpose.TTFT]
    assert histogram == Histogram(sum=6.0, count=5.0, buckets=((0.1, 2.0), (1.0, 4.0), (math.inf, 5.0)))
    assert histogram.mean == pytest.approx(1.2)
    assert histogram.quantile(0.4) == pytest.approx(0.1)
    assert histogram.quantile(0.6) == pytest.approx(0.55)
    assert histogram.quantile(0.99) == 1.0


def test_settings_that_are_labels_are_kept() -> None:
    """The block size in force can be read back; a setting that is `None` is no undefined label."""
    load = read_load(VLLM_PAGE, VLLM)
    assert load.facts["block_size"] == "16"
    assert load.undefined == 0


def test_the_name_of_an_older_vllm_answers_where_the_new_one_is_absent() -> None:
    """vLLM 0.6 is read as well as 0.33."""
    old = 'vllm:gpu_cache_usage_perc{model_name="m"} 0.5\nvllm:time_per_output_token_seconds_count 2\n'
    load = read_load(old, VLLM)
    assert load.kv_utilization_ratio == 0.5
    assert load.names[Purpose.KV_UTILIZATION] == "vllm:gpu_cache_usage_perc"
    both = old + 'vllm:kv_cache_usage_perc{model_name="m"} 0.6\n'
    assert read_load(both, VLLM).kv_utilization_ratio == 0.6


SGLANG_PAGE = """\
sglang:num_running_reqs{model_name="m",dp_rank="0",tp_rank="0"} 3.0
sglang:num_running_reqs{model_name="m",dp_rank="0",tp_rank="1"} 3.0
sglang:num_running_reqs{model_name="m",dp_rank="1",tp_rank="0"} 5.0
sglang:num_queue_reqs{model_name="m",dp_rank="0",priority="",tp_rank="0"} 4.0
sglang:num_queue_reqs{model_name="m",dp_rank="0",priority="1",tp_rank="0"} 1.0
sglang:num_queue_reqs{model_name="m",dp_rank="0",priority="2",tp_rank="0"} 3.0
sglang:prompt_tokens_total{model_name="m",is_streaming="true"} 10.0
sglang:prompt_tokens_total{model_name="m",is_streaming="false"} 30.0
sglang:cached_tokens_total{model_name="m",cache_source="device"} 10.0
sglang:cached_tokens_total{model_name="m",cache_source="storage"} 2.0
sglang:kv_transfer_latency_ms_bucket{le="10.0"} 1.0
sglang:kv_transfer_latency_ms_bucket{le="+Inf"} 2.0
sglang:kv_transfer_latency_ms_sum 30.0
sglang:kv_transfer_latency_ms_count 2.0
sglang:hicache_host_used_tokens{tp_rank="0"} 25.0
sglang:hicache_host_total_tokens{tp_rank="0"} 100.0
"""


def test_ranks_of_one_tensor_parallel_group_are_counted_once() -> None:
    """Two ranks that compute the same three requests are three requests; another data-parallel rank adds its own."""
    assert read_load(SGLANG_PAGE, SGLANG).running == 8.0


def test_queues_by_priority_are_not_added_to_their_total() -> None:
    """With priority scheduling SGLang gives the total and its parts under one name."""
    assert read_load(SGLANG_PAGE, SGLANG).waiting == 4.0
    without_total = SGLANG_PAGE.replace('priority=""', 'priority="0"')
    assert read_load(without_total, SGLANG).waiting == 8.0


def test_foreign_units_become_ours() -> None:
    """A transfer of 30 ms is 0.03 s, its buckets too; a host tier of 25 of 100 tokens is a quarter full."""
    load = read_load(SGLANG_PAGE, SGLANG)
    assert load.histograms[Purpose.KV_TRANSFER_TIME].sum == pytest.approx(0.03)
    assert load.histograms[Purpose.KV_TRANSFER_TIME].buckets[0][0] == pytest.approx(0.01)
    assert load.values[Purpose.OFFLOAD_UTILIZATION] == 0.25
    assert load.values[Purpose.OFFLOAD_HITS] == 2.0
    assert load.values[Purpose.TOKENS_IN] == 40.0


@pytest.mark.parametrize("source", ["host", "storage", "storage_mooncake"])
def test_whatever_a_lower_tier_is_called_its_hits_count(source: str) -> None:
    """SGLang named its storage after the backend until 0.5.15."""
    name = "sglang:cached_tokens_total"
    page = f'{name}{{cache_source="device"}} 5\n{name}{{cache_source="{source}"}} 3\n'
    assert read_load(page, SGLANG).values[Purpose.OFFLOAD_HITS] == 3
    assert read_load(page, SGLANG).parts[Purpose.OFFLOAD_HITS] == {source: 3}


def test_llamacpp_leaves_cached_tokens_out_of_its_prompts_and_we_do_not() -> None:
    """A prompt of 100 tokens of which 60 were cached is a prompt of 100 tokens on every engine."""
    load = read_load("llamacpp:prompt_tokens_total 40\nllamacpp:prompt_tokens_cached_total 60\n", LLAMACPP)
    assert load.values[Purpose.TOKENS_IN] == 100.0
    assert load.prefix_hit_ratio == 0.6


def test_a_total_is_read_from_a_counter_or_a_histogram() -> None:
    """Seconds of bringing KV back are a counter on vLLM and a histogram on SGLang."""
    vllm = read_load("vllm:kv_offload_load_time_total 1.5\n", VLLM)
    page = "sglang:load_back_duration_seconds_sum 1.5\nsglang:load_back_duration_seconds_count 3\n"
    assert vllm.total(Purpose.OFFLOAD_RETURN_TIME) == read_load(page, SGLANG).total(Purpose.OFFLOAD_RETURN_TIME) == 1.5
    assert vllm.total(Purpose.TTFT) is None


@pytest.mark.parametrize("prefix", ["trtllm_", ""])
def test_both_eras_of_tensorrt_llm_are_read(prefix: str) -> None:
    """Names with `trtllm_` and those of before mean the same."""
    page = (
        f'{prefix}kv_cache_utilization{{engine_type="undefined"}} 0.5\n'
        f'{prefix}request_success_total{{finished_reason="stop",model_name="undefined"}} 7\n'
        f"{prefix}time_to_first_token_seconds_count 3\n{prefix}time_to_first_token_seconds_sum 1.5\n"
    )
    load = read_load(page, TENSORRT_LLM)
    assert load.kv_utilization_ratio == 0.5
    assert load.values[Purpose.SUCCEEDED] == 7
    assert load.histograms[Purpose.TTFT].mean == 0.5
    assert load.undefined == 2


def test_the_destructive_page_of_tensorrt_llm_is_not_the_one_that_is_read() -> None:
    """Reading /metrics there would take the statistics away from whoever else reads them."""
    assert TENSORRT_LLM.path == "/prometheus/metrics"


def test_what_is_not_on_the_page_is_not_measured_rather_than_zero() -> None:
    """An empty page gives no number at all."""
    load = read_load("", VLLM)
    assert load == EngineLoad(values={}, histograms={}, parts={}, facts={}, names={})
    assert load.running is None
    assert load.prefix_hit_ratio is None


@pytest.mark.parametrize(
    ("line", "malformed", "not_numbers"),
    [
        ("vllm:num_requests_running NaN", 0, 1),
        ("vllm:num_requests_running +Inf", 0, 1),
        ("vllm:num_requests_running 1e999", 0, 1),
        ("vllm:num_requests_running -1e308", 0, 1),
        ("vllm:num_requests_running", 1, 0),
        ("vllm:num_requests_running{a=b} 1", 1, 0),
        ('vllm:num_requests_running{a="b" 1', 1, 0),
        ("vllm:num_requests_running 1_0", 1, 0),
        ("vllm:num_requests_running 1 2 3", 1, 0),
        ("vllm:num_requests_running " + "1" * 20_000, 1, 0),
        ("<html>503</html>", 1, 0),
        ("somebody_elses{broken 1", 0, 0),
    ],
)
def test_a_bad_line_is_counted_and_the_others_are_read(line: str, malformed: int, not_numbers: int) -> None:
    """One broken line does not hide the load of an engine."""
    load = read_load(f"{line}\nvllm:num_requests_waiting 2\n", VLLM)
    assert load.waiting == 2.0
    assert load.running is None
    assert (load.malformed, load.not_numbers) == (malformed, not_numbers)


def test_label_values_may_hold_braces_commas_and_quotes() -> None:
    """A model called `a{b},"c"` is no malformed line."""
    load = read_load('vllm:num_requests_running{model_name="a{b},\\"c\\"",engine="0"} 1\n', VLLM)
    assert (load.running, load.malformed) == (1.0, 0)


@given(st.text(max_size=400))
def test_no_page_makes_it_fail(text: str) -> None:
    """Whatever an engine or a proxy answers, the reader returns."""
    for table in (VLLM, SGLANG, LLAMACPP, TENSORRT_LLM):
        assert isinstance(read_load(text, table), EngineLoad)
    list(iter_names(text))


@given(st.lists(st.tuples(st.integers(0, len(VLLM_PAGE) - 1), st.characters()), max_size=12))
def test_no_damage_to_a_real_page_makes_it_fail(damage: list[tuple[int, str]]) -> None:
    """Bytes that were changed on the way cost lines, not the scrape."""
    page = list(VLLM_PAGE)
    for place, character in damage:
        page[place] = character
    read_load("".join(page), VLLM)


LABEL_TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x0b\x0c\r\x1c\x1d\x1e\x85"), max_size=8
)


@given(
    st.lists(
        st.tuples(LABEL_TEXT, st.floats(allow_nan=False, allow_infinity=False, min_value=0, max_value=1e15)),
        min_size=1,
        max_size=5,
        unique_by=lambda sample: sample[0],
    )
)
def test_it_reads_what_the_reference_parser_reads(samples: list[tuple[str, float]]) -> None:
    """On well-formed pages the quick reader and prometheus_client agree, whatever the labels hold."""

    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

    page = "# TYPE vllm:num_requests_running gauge\n" + "".join(
        f'vllm:num_requests_running{{engine="{escaped(text)}"}} {value!r}\n' for text, value in samples
    )
    (family,) = text_string_to_metric_families(page)
    expected = sum(sample.value for sample in family.samples)
    load = read_load(page, VLLM)
    assert load.malformed == 0
    assert load.running == pytest.approx(expected)


@pytest.mark.parametrize("table", [VLLM, SGLANG, LLAMACPP, TENSORRT_LLM])
def test_every_name_of_a_page_is_listed_once(table: MetricTable) -> None:
    """`headrace engine verify` sees a histogram as one name."""
    page = '# TYPE a:b_seconds histogram\na:b_seconds_bucket{le="1"} 1\na:b_seconds_sum 1\na:b_seconds_count 1\nc 2\n'
    assert list(iter_names(page)) == ["a:b_seconds", "c"]
    assert all(metric.name not in iter_names(page) for metric in table.metrics)
