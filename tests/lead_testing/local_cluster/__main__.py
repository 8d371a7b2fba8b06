"""The cluster from the command line: `python3 -m lead_testing.local_cluster up|down|status|images|kubeconfig`."""

import argparse
import sys

from lead_testing.local_cluster import build_images, delete, ensure_up, print_status
from lead_testing.local_cluster.errors import CannotRun


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
                for name, reference in build_images(ensure_up()).items():
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
