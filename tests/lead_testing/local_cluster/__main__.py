"""The cluster from the command line: `python3 -m lead_testing.local_cluster up|down|status|images|kubeconfig`."""

import argparse
import os
import sys

from lead_testing.local_cluster import Home, build_images, delete, ensure_up, print_status
from lead_testing.local_cluster.errors import CannotRun
from lead_testing.local_cluster.provenance import Provenance, state_provenance


def main() -> int:
    """Carries one command out; returns the exit status: 0 done, 1 not."""
    parser = argparse.ArgumentParser(prog="python3 -m lead_testing.local_cluster", description=__doc__)
    parser.add_argument("command", choices=("up", "down", "status", "images", "kubeconfig"))
    command = parser.parse_args().command
    try:
        match command:
            case "up":
                print(f"The cluster is up. Use it by\n  {ensure_up().export_line()}")
            case "down":
                delete()
            case "status":
                return 0 if print_status() else 1
            case "images":
                asked = Provenance.asked_by(os.environ)
                cluster, home = ensure_up(), Home.from_environment()
                references = build_images(cluster, home)
                state_provenance(home, asked, references, plain_http=cluster.kind == "local")
                for name, reference in references.items():
                    print(f"{name} {reference}")
            case "kubeconfig":
                print(ensure_up().kubeconfig)
    except CannotRun as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; run it again, it goes on where it was", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
