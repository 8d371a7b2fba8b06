"""`python -m lead_ui FOLDER` serves the runs in a folder; `lead-operator ui` serves a cluster."""

import argparse
import sys
from pathlib import Path

import uvicorn

from lead_ui.local_runs import LocalRuns
from lead_ui.web.access import OpenAccess
from lead_ui.web.app import create_app

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def main() -> int:
    """Serves until it is stopped; returns the exit status."""
    parser = argparse.ArgumentParser(prog="lead ui", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8400)
    options = parser.parse_args()
    hosts = (*LOOPBACK, options.host) if options.host not in ("0.0.0.0", "::") else ("*",)
    app = create_app(LocalRuns(options.folder), OpenAccess(), hosts)
    host = f"[{options.host}]" if ":" in options.host else options.host
    print(f"runs in {options.folder}: http://{host}:{options.port}/ (stop with Ctrl+C)", flush=True)
    uvicorn.run(app, host=options.host, port=options.port, log_level="warning", server_header=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
