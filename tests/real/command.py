"""`python -m tests.real.vllm` and `python -m tests.real.sglang`: install, serve, or record what it answers."""

import argparse
import signal
import sys

from tests.real.installation import NotInstallableError, ensure_installed, ensure_model
from tests.real.pairs import serving_pair
from tests.real.recording import record
from tests.real.serving import ServeRecipe, serving


def main(recipe: ServeRecipe) -> None:
    parser = argparse.ArgumentParser(prog=f"python -m tests.real.{recipe.kind}", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("install", help="install the engine, convert the model, print the paths of both")
    serve = verbs.add_parser("serve", help="serve the bundled model until Ctrl-C or SIGTERM")
    serve.add_argument("--port", type=int, required=True)
    serve.add_argument("extra_args", nargs="*", help="more arguments of the engine, after --")
    verbs.add_parser("pair", help="serve it by a prefill and a decode engine until Ctrl-C or SIGTERM")
    record_verb = verbs.add_parser("record", help="write tests/captures/<engine> anew; NAMEs: only these")
    record_verb.add_argument("names", nargs="*")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if options.verb == "install":
            print(ensure_installed(recipe.install), ensure_model(), sep="\n")  # noqa: T201
            return
        if options.verb == "record":
            record(recipe, options.names)
            return
        if options.verb == "pair":
            with serving_pair(recipe) as pair:
                urls = {side.value: engine.url for side, engine in pair.sides.items()}
                print(urls, f"whole {pair.whole.url}, transfers {pair.transfer_port}", flush=True)  # noqa: T201
                signal.pause()
        with serving(recipe, *options.extra_args, port=options.port) as engine:
            print(f"{engine.kind} {engine.version} answers at {engine.url}, model {engine.served_model}", flush=True)  # noqa: T201
            assert engine.process is not None
            engine.process.wait()
    except NotInstallableError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        return
