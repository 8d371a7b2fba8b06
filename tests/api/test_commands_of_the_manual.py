"""Every kubectl command on the manual's page of clusters, in its order, against a real API server."""

import json
import re
import shlex

from lead_testing import PROJECT_ROOT
from lead_testing.api_bench import Bench
from lead_testing.operator_process import wait_for

PAGE = PROJECT_ROOT / "charts/manual/your-cluster.md"
OF_OTHERS = ("helm", "LEAD_CLUSTER=")  # the ring cluster installs the chart and builds the images


def commands() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if not line.startswith(OF_OTHERS)]


def test_they_do_what_the_page_says(bench: Bench) -> None:
    bench.operator.start()
    assert len(commands()) > 6
    for line in commands():
        program, *words = shlex.split(line)
        assert program == "kubectl"
        words = [str(PROJECT_ROOT / word) if word.startswith("crds/") else word for word in words if word != "--watch"]
        bench.kubectl(*words)
        if words[0] == "apply":
            wait_for("the run", lambda: bench.status("trun", "lead-demo").get("phase"))
        if words[0] == "scale":
            assert bench.get("trun", "lead-demo")["spec"]["nodes"] == 1
        if "suspend" in line:
            wanted = json.loads(words[-1])["spec"]["suspend"]
            assert bench.get("trun", "lead-demo")["spec"]["suspend"] is wanted
    assert not bench.get("trun", "lead-demo")
