"""The flags of an engine are read out of its --help, whichever library printed it."""

import argparse
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engines.verification.help_text import read_help

CAPTURES = Path(__file__).parents[3] / "captures"


def parser_of_vllms_kind() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="serve")
    group = parser.add_argument_group("Memory", "Options such as --not-a-flag of this group.")
    group.add_argument("--max-model-len", type=int, help="Not the same as --also-not-a-flag.")
    group.add_argument("--tensor-parallel-size", "-tp", type=int, help="-1 is not a flag either.")
    group.add_argument("--kv-cache-dtype", choices=["auto", "fp8-with--dashes"])
    group.add_argument("--enable-prefix-caching", action=argparse.BooleanOptionalAction)
    group.add_argument("--a-name-that-is-so-long-that-its-explanation-moves-to-the-next-line", help="Deprecated.")
    return parser


def test_argparse_with_aliases_and_both_forms_of_a_switch() -> None:
    """vLLM and SGLang: long and short names, `--no-` forms, and no name that an explanation mentions."""
    facts = read_help(parser_of_vllms_kind().format_help())
    assert facts.flags == {
        "-h",
        "--help",
        "--max-model-len",
        "--tensor-parallel-size",
        "-tp",
        "--kv-cache-dtype",
        "--enable-prefix-caching",
        "--no-enable-prefix-caching",
        "--a-name-that-is-so-long-that-its-explanation-moves-to-the-next-line",
    }
    assert facts.deprecated == {"--a-name-that-is-so-long-that-its-explanation-moves-to-the-next-line"}


@pytest.mark.parametrize("columns", ["20", "40", "80", "500"])
def test_the_width_of_the_terminal_changes_nothing(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A help that was folded to a narrow screen has the same flags."""
    wide = read_help(parser_of_vllms_kind().format_help()).flags
    monkeypatch.setenv("COLUMNS", columns)
    assert read_help(parser_of_vllms_kind().format_help()).flags == wide


def test_click_plain_and_in_boxes() -> None:
    """trtllm-serve: click's own form, and the boxes of its rich form."""
    plain = """\
Usage: trtllm-serve serve [OPTIONS] MODEL

Options:
  --tp_size, --tensor_parallel_size INTEGER
                                  :tag:`beta` Tensor parallelism, see --nothing.
  --telemetry / --no-telemetry    Send counts.
  --generation-config [auto|trtllm]
                                  Where defaults come from.
  --help                          Show this message and exit.
"""
    expected = {
        "--tp_size",
        "--tensor_parallel_size",
        "--telemetry",
        "--no-telemetry",
        "--generation-config",
        "--help",
    }
    assert read_help(plain).flags == expected
    boxed = """\
╭─ Options ───────────────────────────────────────────╮
│ --tp_size,--tensor_parallel_size  INTEGER  See --x. │
│ --telemetry       --no-telemetry           Send.    │
│ --generation-config               [auto]   Where.   │
│ --help                                     Show.    │
╰─────────────────────────────────────────────────────╯
"""
    assert read_help(boxed).flags >= expected - {"--no-telemetry"}
    assert "--x" not in read_help(boxed).flags


def test_llama_servers_own_form() -> None:
    """llama-server: short names first with wide gaps, lists of aliases that go on, banners of dashes."""
    text = """\
----- common params -----

-h,    --help, --usage                  print usage and exit
-t,    --threads N                      number of threads, as --nothing
                                        (env: LLAMA_ARG_THREADS)
-fa,   --flash-attn [on|off|auto]       set Flash Attention
--cpu-strict <0|1>                      use strict CPU placement
-ngl,  --gpu-layers, --n-gpu-layers N   layers to store in VRAM
--spec-draft-n-max, --draft-max,
    --draft-n N                         number of tokens to draft
--fim-qwen-1.5b-default                 use default Qwen 2.5 Coder 1.5B
----- sampling params -----
"""
    assert read_help(text).flags == {
        "-h",
        "--help",
        "--usage",
        "-t",
        "--threads",
        "-fa",
        "--flash-attn",
        "--cpu-strict",
        "-ngl",
        "--gpu-layers",
        "--n-gpu-layers",
        "--spec-draft-n-max",
        "--draft-max",
        "--draft-n",
        "--fim-qwen-1.5b-default",
    }


def test_deprecation_is_told_from_a_mention_of_it() -> None:
    """Only an explanation that begins with the word speaks of its own flag."""
    text = """\
options:
  --enable-dp-attention
                        Deprecated. Use --attn-dp-size instead.
  --grpc-mode           (Deprecated, use --smg-grpc-mode) Legacy.
  --smg-grpc-mode       Replaces the deprecated --grpc-mode.
"""
    assert read_help(text).deprecated == {"--enable-dp-attention", "--grpc-mode"}


def test_a_short_help_has_the_flags_of_its_usage_line() -> None:
    """Some versions print only the usage unless more is asked for."""
    text = "usage: serve [-h] [--port PORT] [--host HOST]\n             [--model MODEL]\n"
    assert read_help(text).flags == {"--port", "--host", "--model"}


@pytest.mark.parametrize(
    "name", ["vllm/serve_flags.txt", "sglang/launch_server_flags.txt", "llamacpp/llama_server_flags.txt"]
)
def test_every_flag_of_a_real_engine_survives_printing(name: str) -> None:
    """All names that the engines have are read back from a help that argparse prints with them."""
    flags = [line for line in (CAPTURES / name).read_text().splitlines() if line.startswith("--")]
    parser = argparse.ArgumentParser(add_help=False)
    for flag in flags:
        if not flag.endswith("-"):
            parser.add_argument(flag, help="See --nothing else.")
    shown = read_help(parser.format_help()).flags
    assert shown >= {flag for flag in flags if not flag.endswith("-")}
    assert "--nothing" not in shown


@given(st.text(max_size=500))
def test_no_text_makes_it_fail(text: str) -> None:
    """Whatever a program prints, it is read."""
    read_help(text)
