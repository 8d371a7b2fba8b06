"""Tries the goals of reliability at length, on demand: `make campaign ARGS="--goals R1,R2 --count 50 --seed 7"`.

Each goal leaves a result file: how much was asked and done, figures, verdict, and the plan of every violation.
`--replay PLAN` plays one plan again, as a failure has printed it. The quick rings try a sample of the same plans, and
shorter ones. Goals: R1 kills, R2 Sieve's patterns, R3 calls, R4 watches, deaf (an API server that answers 503 for 1, 5
and 20 minutes, and a wire that is silent for 5), model (the model tests of decide), and R5, R6, R12, R13, R15, R16,
R18, R19: tests of the API ring, larger or again and again. Of the data path: R10 its store, R11 the node's cache (as
root), R14 hostile bytes for every parser. `live` plays runs on the local cluster (as root) under drawn faults.
"""

import argparse
import contextlib
import json
import sys
import tempfile
from pathlib import Path

from campaign import goals
from campaign.control_plane import servers
from campaign.data_goals import DATA, try_data
from campaign.figures import VIOLATED, write_result
from campaign.live.goal import LIVE, try_live
from campaign.live.kinds import KINDS
from campaign.live.plan import parse_live_plan
from campaign.repeated import REPEATED, repeat
from lead_testing.kube_faults.goals import GOALS
from lead_testing.kube_faults.plan import Plan, parse_plan
from lead_testing.kube_faults.trial import report, run_trial


def main() -> int:
    """Returns 0 when no goal was violated."""
    parser = argparse.ArgumentParser(prog="make campaign", description=__doc__.splitlines()[0])
    parser.add_argument("--goals", default=",".join(goals.NAMES), help=f"of {', '.join(goals.NAMES)}; default: all")
    parser.add_argument(
        "--count", type=int, default=0, help="plans, steps or cases of each goal; default: as many as it wants"
    )
    parser.add_argument("--seed", type=int, default=1, help="draws the plans; the same seed draws the same ones")
    parser.add_argument("--side-by-side", type=int, default=4, help="trials at a time (default: 4)")
    parser.add_argument("--out", type=Path, default=Path("outputs/campaign"), help="folder of the result files")
    parser.add_argument("--replay", default="", help="one plan as JSON: play it, and nothing else")
    options = parser.parse_args()
    chosen = options.goals.split(",")
    if unknown := sorted(set(chosen) - set(goals.NAMES)):
        parser.error(f"unknown goal {unknown[0]!r}; expected one of {', '.join(goals.NAMES)}")
    if options.replay and "story" in json.loads(options.replay):
        plan = parse_live_plan(options.replay, KINDS)
        result = try_live(0, plan.seed, options.side_by_side, options.out, (plan,))
        print(json.dumps(result["trials"], indent=1))
        return 1 if result["violations"] else 0
    asked = "model" in chosen and not options.replay
    results = [goals.try_model(options.count, options.seed)] if asked else []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lead-campaign-")))
        if options.replay or set(chosen) & {*GOALS, "deaf"}:
            started = goals.Servers(*stack.enter_context(servers(folder)), folder, options.side_by_side)
            if options.replay:
                return replay(started, parse_plan(options.replay))
            learned = goals.learn(started)
            for goal in [name for name in chosen if name in (*GOALS, "deaf")]:
                results.append(goals.try_plans(goal, started, learned, options.count, options.seed))
                write_result(options.out, results[-1])
    for goal in [name for name in chosen if name in REPEATED]:
        results.append(repeat(goal, options.count, options.seed))
        write_result(options.out, results[-1])
    for goal in [name for name in chosen if name in DATA]:
        results.append(try_data(goal, options.count, options.seed))
        write_result(options.out, results[-1])
    if LIVE in chosen:
        results.append(try_live(options.count, options.seed, options.side_by_side, options.out))
    for result in results:
        write_result(options.out, result)
        missed = "".join(f"; {text}" for text in result["missed"])
        print(
            f"{result['goal']}: {result['verdict']}, {result['done']} of {result['asked']} done, "
            f"{len(result['violations'])} violations ({result['seconds']} s){missed}"
        )
    print(f"results: {options.out.absolute()}")
    return 1 if any(result["verdict"] == VIOLATED for result in results) else 0


def replay(on: goals.Servers, plan: Plan) -> int:
    """Plays one plan against the undisturbed end of its story."""
    expected = run_trial(on.plane, on.minio, on.folder / "undisturbed", Plan(plan.workload))
    outcome = run_trial(on.plane, on.minio, on.folder / "replayed", plan, expected.end)
    print(report([expected, outcome]) or f"{plan}: no violation ({outcome.kills} kills, {outcome.seconds:.0f} s)")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
