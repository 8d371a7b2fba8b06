"""The attacks that the project answers, each with the tests that try it, as a page: `tests/ATTACKS.md`.

    python -m lead_testing.audit_rows

writes the page. A test names its rows in its docstring, as `Audit: B3` or `Audit: S-6, S13`. A house test compares the
page with the tests, refuses a row that no test tries, and a name that is no row.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from lead_testing import PROJECT_ROOT

PAGE = PROJECT_ROOT / "tests/ATTACKS.md"
RINGS = ("unit", "chart", "api", "cluster")
_NAMED = re.compile(r"\bAudit: ([A-Za-z0-9-]+(?:(?:, | and )[A-Za-z0-9-]+)*)")

# id: (what an attacker does, what the project answers)
ROWS = {
    "B1": (
        "a raw dataset file is a pickle or torch file built to run code, read memory, or exhaust the reader",
        "no constructor of numpy or torch is given to a stream; BadData names the file",
    ),
    "B2": (
        "a small resource with a deep or odd `spec` ends the operator for every namespace",
        "it is skipped, reported in an event and a condition, and served once it is corrected",
    ),
    "B3": (
        "a credential or pod of one namespace reads or writes another's runs, caches, data or the operator's records",
        "the store refuses: credentials reach one namespace, sessions one run or build",
    ),
    "S-1": (
        "users of the release's namespace reach the store's root password, the operator's key or its lease",
        "several namespaces for runs exclude the release's own; a run mounts nothing of the release",
    ),
    "S-2": (
        "many large resources or forged 16 MiB manifests exhaust the operator's memory",
        "copies are bounded by bytes; manifests are read within a limit, one at a time",
    ),
    "S-3": (
        "`config` names a file of the pod, or an object of somebody else, and reads its digest or content",
        "weights come from `weights/` only, and no message prints what was found",
    ),
    "S-4": (
        "`podOverrides`, priority classes, schedulers or claims reach what the administrator did not offer",
        "allow-lists in the chart's values; the refusal names field, value and list",
    ),
    "S-5": (
        "a model name makes the trainer download from a network",
        "names of the library's own list only; nothing reaches a network but the store",
    ),
    "S-6": (
        "a DatasetCache reads raw data of another namespace, or the records of runs",
        "sources are the namespace's own folder and shared prefixes; reserved folders are refused",
    ),
    "flood": (
        "one user creates resources by the thousand, or changes one without pause",
        "a queue that is fair between namespaces: the others wait seconds longer at most",
    ),
    "chaos-M1": (
        "somebody with rights on `status` calls stages done, or forges digests",
        "status is a report: a stage ends by a valid final checkpoint alone",
    ),
    "chaos-S4": (
        "a run's status is erased while its cache is deleted or built again",
        "the digests it trains on are read again from its pods and manifests",
    ),
    "minor-integers": (
        "a record of a pod holds integers of 10^30",
        "bounded when parsed; status stays writable",
    ),
    "minor-empty-final": (
        "a pod commits a final manifest that names no files, or files that are not there",
        "the stage does not succeed by it; a condition says why",
    ),
    "FolderTree": (
        "a link in a raw tree leads out of its volume",
        "BadData names the link; nothing of its target is read",
    ),
    "minor-metrics": (
        "any pod reads `/metrics` of the operator",
        "authenticated and authorised by the API server, as for other controllers",
    ),
    "minor-http": (
        "somebody on the network reads or changes what pods and the embedded store exchange",
        "TLS with a certificate authority of the release's own, by default",
    ),
    "minor-emptydir": (
        "a pod fills its node's disk through `scratch` or `/tmp`",
        "size limits and a request for ephemeral storage by default",
    ),
    "minor-netpol": (
        "pods reach any address on the store's port",
        "policies name the store's networks where the administrator gives them",
    ),
    "minor-raw-writes": (
        "the operator's key overwrites or deletes raw data",
        "the store refuses: it may only read them",
    ),
    "page-token": (
        "somebody without a token, or with a wrong one, asks the page for a run",
        "401, and nothing of any run",
    ),
    "page-tenants": (
        "a user of one namespace asks the page for another's run, cache, curve, picture or log, by any address",
        "404, the same as for what does not exist: each answer waits for a SubjectAccessReview",
    ),
    "page-cookie": (
        "another site, or a script, uses the sign-in of the page",
        "the cookie is HttpOnly and SameSite=Strict; forms of other sites are refused",
    ),
    "page-keys": (
        "the page is made to show a key of the store, or to change something",
        "keys stay in the pod, its account has no verb that writes, its store keys read",
    ),
    "page-text": (
        "a name, message, tag, config or event holds HTML or a script",
        "templates escape it, scripts get it as data, and the Content-Security-Policy allows nothing inline",
    ),
    "page-proxy": (
        "a request names a user in the headers of an authenticating proxy",
        "they count only beside the proxy's secret, and never name users or groups of Kubernetes itself",
    ),
    "S3": ("an image from elsewhere enters through a run", "no field names an image; digests on request"),
    "S6": ("the store, or its STS, redirects a request elsewhere", "no redirect is followed"),
    "S8": ("a path with `..`, NUL, or a reserved folder", "refused at admission and by the store"),
    "S10": ("a pickle of any kind reaches an unpickler", "one restricted reader; every other one is refused by a test"),
    "S11": ("documents that are small and unpack to much", "bounded in depth, count and bytes before they are parsed"),
    "S12": (
        "a pod calls the API server with what is mounted",
        "no API token; the store's token is of another audience",
    ),
    "S13": ("a key of pods overwrites manifests or deletes", "no delete; versions of manifests are kept"),
    "S14": ("forged progress, ends, attempts or manifests", "claims of pods are bounded and change no other run"),
    "S16": ("the operator's ServiceAccount does more than it needs", "its rights are listed exactly by a test"),
    "S17": ("a planted secret shows up in CRs, events, logs or objects", "it does not"),
    "S18": ("a training pod connects to what it need not reach", "NetworkPolicies, tried where they are enforced"),
    "S19": ("one user takes all of a cluster", "quotas per namespace and limits per run"),
    "S22": ("a dependency or image is replaced on its way", "hashes, digests, bills of materials, signatures"),
}


def rows_in(docstring: str) -> list[str]:
    """Returns the rows that a docstring names."""
    return [row for found in _NAMED.findall(docstring) for row in re.split(r", | and ", found)]


def named_tests() -> Iterator[tuple[str, str]]:
    """Yields (row, `path::name`) of every test that names a row, in the order of paths."""
    for ring in RINGS:
        for path in sorted((PROJECT_ROOT / "tests" / ring).rglob("test_*.py")):
            tree = ast.parse(path.read_text())
            whole = rows_in(ast.get_docstring(tree) or "")
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                    for row in dict.fromkeys([*whole, *rows_in(ast.get_docstring(node) or "")]):
                        yield row, f"{path.relative_to(PROJECT_ROOT / 'tests')}::{node.name}"


def page() -> str:
    """Returns the page: a line a row."""
    tests: dict[str, list[str]] = {row: [] for row in ROWS}
    for row, test in named_tests():
        tests.setdefault(row, []).append(test)
    lines = [
        "# Attacks and answers",
        "",
        "Written by `python -m lead_testing.audit_rows` from the tests, which try each attack; the rings are explained",
        "in [README.md](README.md), the trust model in [SECURITY.md](../.github/SECURITY.md).",
        "",
        "| row | attack | answer | tests |",
        "|---|---|---|---|",
    ]
    for row, (attack, answer) in ROWS.items():
        names = "<br>".join(f"`{path}` {name}" for path, _, name in (test.partition("::") for test in tests[row]))
        lines.append(f"| {row} | {attack} | {answer} | {names} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes the page; returns the exit status."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{Path(PAGE).relative_to(PROJECT_ROOT)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
