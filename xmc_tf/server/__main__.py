"""``xmc-tf serve``: serve a model over HTTP."""

import argparse
import socket
from collections.abc import Sequence

from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import positive, thread_number, whole
from xmc_tf.common.process import cli
from xmc_tf.params import PredictionOptions, add_flags, add_model_place, from_arguments, model_place
from xmc_tf.params.flags import SHORT
from xmc_tf.server.access import AllowedHosts
from xmc_tf.server.application import Application, Limits
from xmc_tf.server.connections import BACKLOG, address_of, bound_socket, require_server, serve


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser(
        "xmc_tf.server",
        "Serve a model over HTTP, in the REST format of TensorFlow Serving, without TensorFlow Serving.\n\n"
        "  POST /v1/models/xmc:predict              labels of texts\n"
        "  GET  /v1/models/xmc                      the version that is served\n"
        "  GET  /healthz                            whether the server answers\n"
        "  GET  /monitoring/prometheus/metrics      metrics for Prometheus\n\n"
        "Texts of concurrent requests are predicted in batches. A new version of the model is served as soon as it is\n"
        "in the folder. There is no encryption or authentication: put a proxy such as nginx in front of the server.",
    )
    add_model_place(
        out,
        "folder of a model, which may be replaced while it is served; or a folder of numbered models (1, 2, …), "
        "of which the highest is served",
    )
    out.add_argument("--name", default="xmc", help="name of the model in the URL")
    out.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen on; 0.0.0.0: all")
    out.add_argument("-p", "--port", type=whole, default=8501, metavar="INT", help="port; 0: any free port")
    out.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="answer requests to this host name too, and from its pages; may be repeated (default: addresses, names "
        "without a dot, and the name of this machine)",
    )  # fmt: skip
    answers = out.add_argument_group("answers")
    add = answers.add_argument
    add("-k", "--only-topk", type=whole, default=10, metavar="INT", help="labels per text, unless the request sets k")
    add("--max-topk", type=whole, default=100, metavar="INT", help="maximum number of labels per text")
    add("-b", "--beam-size", type=positive, metavar="INT", help="beam size (default: the model's)")
    add("--threshold", type=float, default=float("-inf"), metavar="SCORE",
        help="leave out labels with lower scores (default: none)")  # fmt: skip
    add_flags(answers, "min_precision", of=PredictionOptions)
    add_flags(answers, "runtime")
    add = out.add_argument_group("limits").add_argument
    add("--threads", type=thread_number, default=-1, metavar="INT", help="threads per batch; -1: one per core")
    add("--max-batch", type=whole, default=64, metavar="INT", help="maximum number of texts in a batch")
    add("--max-waiting", type=whole, default=4096, metavar="INT",
        help="maximum number of waiting texts; more get status 503, or 413 if they are in one request")  # fmt: skip
    add("--max-mb", type=whole, default=8, metavar="INT", help="maximum size of a request in MB")
    add("--max-connections", type=whole, default=1000, metavar="INT", help="connection limit; more get status 503")
    add("--timeout", type=float, default=30.0, metavar="SECONDS", help="time limit to receive and to answer a request")
    add("--poll", type=float, default=5.0, metavar="SECONDS", help="time between two checks for a new version")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """Run the server until Ctrl-C or SIGTERM."""
    arguments = parser().parse_args(argv)
    for name in ("only_topk", "max_topk", "max_batch", "max_waiting", "max_mb", "max_connections"):
        if (number := getattr(arguments, name)) < 1:
            flag = SHORT.get(name, f"--{name.replace('_', '-')}")
            raise InputError(f"{flag} must be at least 1", received=str(number))
    given = None if arguments.threshold == float("-inf") else arguments.threshold
    from_arguments(PredictionOptions, argparse.Namespace(threshold=given, min_precision=arguments.min_precision))
    for name in ("timeout", "poll"):
        if not 0 < getattr(arguments, name) <= 86_400:
            raise InputError(f"--{name} must be a number of seconds above 0 and at most 86,400")
    folder = model_place(arguments)
    require_server()
    from xmc_tf.server.predictions import Predictions
    from xmc_tf.server.versions import ServedModel

    bound = bound_socket(arguments.host, arguments.port)
    served = ServedModel(
        folder, arguments.beam_size, arguments.threshold, arguments.threads, arguments.runtime, arguments.min_precision
    )
    limits = Limits(arguments.max_mb << 20, arguments.timeout, arguments.max_connections)
    routes = Predictions(
        served, limits, name=arguments.name, k=arguments.only_topk, most=max(arguments.max_topk, arguments.only_topk),
        max_batch=arguments.max_batch, max_waiting=arguments.max_waiting, poll_s=arguments.poll,
        allowed=AllowedHosts([arguments.host, socket.gethostname()], arguments.allow_host),
    )  # fmt: skip
    bound.listen(BACKLOG)  # only now: before, a proxy must see that the server is not ready
    url = f"{address_of(bound)}/v1/models/{arguments.name}:predict"
    print(f"""{url}   (press Ctrl-C to stop)

  curl -d '{{"inputs": {{"text": ["a text"]}}}}' {url}
""", flush=True)  # fmt: skip
    serve(Application(routes, limits), bound)


if __name__ == "__main__":
    cli.run(main)
