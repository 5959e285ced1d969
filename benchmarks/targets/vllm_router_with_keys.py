"""Runs vllm-router with its check of callers' keys on. Run by the router's own Python: a URL, then its arguments.

The check is an argument of the router's class (`api_key_validation_urls`), which its command line does not offer. It
asks the URL about each key once, and remembers the answer.
"""

import sys

from vllm_router.launch_router import launch_router, parse_router_args
from vllm_router.router_args import RouterArgs


def main(url: str, arguments: list[str]) -> None:
    parsed = parse_router_args(arguments)
    told = parsed if isinstance(parsed, RouterArgs) else RouterArgs.from_cli_args(parsed)
    told.api_key_validation_urls = [url]  # all its fields become arguments of the class
    launch_router(told)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
