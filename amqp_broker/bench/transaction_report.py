"""From the controllers' results to what the user reads."""

from __future__ import annotations

from typing import Any, Final

from amqp_broker.bench.histogram import Histogram
from amqp_broker.bench.report import BUSY, percentiles, share_of_a_core
from amqp_broker.bench.settings import BenchSettings

LATENCIES: Final = {
    "declares": ("declare_us", "declared after"),
    "discharges": ("discharge_us", "discharged after"),
    "wholes": ("transaction_us", "whole transaction"),
}
SUMS: Final = (
    "discharged",
    "committed",
    "rolled_back",
    "refused",
    "late_outcomes",
    "retired_twice",
    "settled_retirements",
)
# What the queues hold at the end: of each, how many; anything but 0 is wrong.
WRONG: Final = ("lost", "duplicates", "out_of_order", "forbidden", "foreign")


def combine(settings: BenchSettings, results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One report from the results of the controllers."""
    found = list(results.values())
    elapsed = max(1e-9, max(one["last_at"] for one in found) - min(one["first_at"] for one in found))
    report: dict[str, Any] = {"settings": settings.describe(), "elapsed_s": elapsed}
    for name in SUMS:
        report[name] = sum(one[name] for one in found)
    report["posted"] = report["discharged"] * settings.in_each
    report["retired"] = report["posted"] if settings.retire else 0
    report["transactions_per_second"] = report["discharged"] / elapsed
    report["messages_per_second"] = (report["posted"] + report["retired"]) / elapsed
    for name, (key, _) in LATENCIES.items():
        histogram = Histogram()
        for one in found:
            histogram.merge(one[name]["latencies"], one[name]["largest"])
        report[key] = histogram.summary()
    report["first_refusal"] = next((one["first_refusal"] for one in found if one["first_refusal"]), "")
    report["outcomes"] = {name: sum(one["outcomes"][name] for one in found) for name in found[0]["outcomes"]}
    # Unsettled retirements of committed transactions are settled by the broker (4.4.2).
    unsettled = settings.retire and not settings.retire_settled
    due = report["committed"] * settings.in_each if unsettled else 0
    report["unsettled_retirements"] = max(0, due - report.pop("settled_retirements")) if due else 0
    report["postings_there"] = {
        name: sum(one["posted_there"][name] for one in found) for name in ("received", *WRONG)
    }
    if settings.retire:
        report["input"] = settings.inputs * settings.pairs
        report["input_there"] = {
            name: sum(one["input_there"][name] for one in found) for name in ("received", *WRONG)
        }
    report["busy"] = {name: round(one["cpu_s"] / elapsed, 3) for name, one in results.items()}
    report["bottleneck"] = sorted(name for name, share in report["busy"].items() if share > BUSY)
    report["stalled"] = sorted(name for name, one in results.items() if one["stalled"])
    return report


def is_clean(settings: BenchSettings, report: dict[str, Any]) -> bool:
    """Every message of a committed transaction once, none of another, every outcome in time."""
    queues = [report["postings_there"], *([report["input_there"]] if settings.retire else [])]
    wrong = sum(queue[name] for queue in queues for name in WRONG) - (
        # What came back to the input may stand at another place than before.
        report["input_there"]["out_of_order"] if settings.retire else 0
    )
    wrong += report["refused"] + report["late_outcomes"] + report["retired_twice"]
    wrong += report["unsettled_retirements"] + len(report["stalled"])
    expected = 0 if settings.settled else settings.postings * settings.pairs
    accepted: int = report["outcomes"]["accepted"]
    return wrong == 0 and accepted >= expected


def as_text(report: dict[str, Any]) -> str:
    """The report for a terminal."""
    retired = f", {report['retired']:,} retired" if report["retired"] else ""
    lines = [
        report["settings"],
        f"  {report['transactions_per_second']:>12,.0f} transactions/s, "
        f"{report['messages_per_second']:,.0f} messages/s ({report['posted']:,} posted{retired}), "
        f"{report['elapsed_s']:.2f} s",
    ]
    lines += [percentiles(label, report[key]) for key, label in LATENCIES.values()]
    lines.append(
        f"  {report['committed']:,} committed, {report['rolled_back']:,} rolled back as asked, "
        f"{report['refused']:,} refused"
    )
    if report["first_refusal"]:
        lines.append(f"  first refusal: {report['first_refusal']}")
    lines.append("  posted, found afterwards: " + there(report["postings_there"]))
    if "input_there" in report:
        lines.append(f"  left of {report['input']:,} to be retired: " + there(report["input_there"]))
    lines += [f"  {report[name]:,} {text}" for name, text in REMARKS.items() if report[name]]
    lines += [f"  {name} made no progress and gave up" for name in report["stalled"]]
    return "\n".join([*lines, *share_of_a_core(report)])


def there(queue: dict[str, int]) -> str:
    """What a queue held at the end, as a phrase."""
    return (
        f"{queue['received']:,} as they must be, {queue['lost']:,} lost, {queue['duplicates']:,} duplicates, "
        f"{queue['out_of_order']:,} out of order, {queue['forbidden']:,} that must not be there, "
        f"{queue['foreign']:,} of other runs"
    )


REMARKS: Final = {
    "late_outcomes": "postings without an outcome when their transaction had committed (4.4.1)",
    "retired_twice": "messages were retired by two committed transactions",
    "unsettled_retirements": "retirements were not settled by the broker after their commit (4.4.2)",
}
