"""The operator's command line: `lead-operator run | render FILE | objects PREFIX | smoke-run FILE | …`.

`run` is what the Deployment starts; `render` prints what a manifest would become, without a cluster; `objects` shows
what lies in a storage profile; `smoke-run` is what `helm test` runs; `storage-init` is the chart's Job that makes
buckets and keys; `token-keys` is the sidecar by which the embedded store checks the tokens of pods. A wrong
environment or manifest ends in one sentence and exit status 2.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from lead_operator.errors import LeadOperatorError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="lead-operator", description="Trains driving models on Kubernetes.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="watch TrainingRuns and DatasetCaches, and act on them")
    render = commands.add_parser("render", help="print what a manifest would become, without a cluster")
    render.add_argument("file", help="a YAML file with TrainingRuns and DatasetCaches; - reads standard input")
    objects = commands.add_parser("objects", help="list what lies below a prefix, with the newest checkpoint's files")
    objects.add_argument("prefix", help="runs/NAMESPACE/UID/, or an address from a status: s3://BUCKET/...")
    objects.add_argument("--profile", default="default", help="the storage profile to list (default: default)")
    smoke = commands.add_parser("smoke-run", help="create a cache and a short run, wait for its end, and remove both")
    smoke.add_argument("file", help="a YAML file with a DatasetCache and, last, a TrainingRun")
    smoke.add_argument("--namespace", required=True, help="where both are created")
    smoke.add_argument("--timeout", type=float, default=900.0, metavar="SECONDS", help="until its end (default 900)")
    commands.add_parser("storage-init", help="make the buckets and keys of the embedded object store")
    commands.add_parser("token-keys", help="serve the API server's token keys to the embedded object store")
    options = parser.parse_args(arguments)
    try:
        if options.command == "run":
            return _run()
        if options.command == "render":
            return _render(options.file)
        if options.command == "objects":
            return _objects(options.prefix, options.profile)
        if options.command == "smoke-run":
            return _smoke_run(options.file, options.namespace, options.timeout)
        if options.command == "token-keys":
            return _token_keys()
        return _storage_init()
    except LeadOperatorError as error:
        print(f"lead-operator: {error}", file=sys.stderr)
        return 2


def _run() -> int:
    # Imported here: `render` must not need kopf or a Kubernetes client.
    from lead_operator.cli.logging_setup import set_up_logging
    from lead_operator.handlers.startup import run_operator
    from lead_operator.settings import read_settings

    settings = read_settings(os.environ)
    set_up_logging(settings.log_level)
    return asyncio.run(run_operator(settings))


def _render(file: str) -> int:
    from lead_operator.cli.render import render, to_yaml

    sys.stdout.write(to_yaml(render(file)))
    return 0


def _objects(prefix: str, profile: str) -> int:
    from lead_operator.cli.storage_listing import list_objects

    for line in list_objects(os.environ, prefix, profile):
        print(line)
    return 0


def _smoke_run(file: str, namespace: str, timeout_s: float) -> int:
    from lead_operator.cli.smoke_run import smoke_run

    return smoke_run(file, namespace, timeout_s)


def _storage_init() -> int:
    from lead_operator.cli.storage_init import main as storage_init

    return int(storage_init())


def _token_keys() -> int:
    from lead_operator.cli.token_keys import main as token_keys

    return int(token_keys())


if __name__ == "__main__":
    sys.exit(main())
