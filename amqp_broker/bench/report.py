"""From the processes' results to what the user reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from amqp_broker.bench.histogram import Histogram
from amqp_broker.bench.settings import BenchSettings

# Above this share of one core over the whole run, a process of the tool limits the rate, not the broker.
BUSY: Final = 0.9
LATENCIES: Final = {
    "latency_us": "delivered after",
    "outcome_latency_us": "outcome after",
    "declare_us": "declared after",
    "discharge_us": "discharged after",
    "transaction_us": "whole transaction",
}
# What the queues of transactions hold at the end: of each, how many; anything but 0 is wrong.
WRONG: Final = ("lost", "duplicates", "out_of_order", "forbidden", "foreign")
REMARKS: Final = {
    "foreign": "messages of other runs were in the queue",
    "overruns": "transfers came without credit",
    "repeated_dispositions": "deliveries were settled more than once",
    "late_outcomes": "postings without an outcome when their transaction had committed (4.4.1)",
    "retired_twice": "messages were retired by two committed transactions",
    "unsettled_retirements": "retirements were not settled by the broker after their commit (4.4.2)",
}
Results = list[dict[str, Any]]


def combine(settings: BenchSettings, results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One report from the results of the named processes (`sender-0`, `receiver-0`, `controller-0`, ...)."""
    report: dict[str, Any] = {"settings": settings.describe()}
    found = list(results.values())
    report |= (_of_transactions if settings.transactions else _of_messages)(settings, found)
    outcomes = [one["outcomes"] for one in found if "outcomes" in one]
    report["outcomes"] = {name: total(outcomes, name) for name in (outcomes[0] if outcomes else ())}
    report["cpu_s"] = total(found, "cpu_s")
    report["busy"] = {name: round(one["cpu_s"] / report["elapsed_s"], 3) for name, one in results.items()}
    report["bottleneck"] = sorted(name for name, share in report["busy"].items() if share > BUSY)
    report["stalled"] = sorted(name for name, one in results.items() if one["stalled"])
    return report


def total(results: Iterable[dict[str, Any]], name: str) -> Any:
    """Added up over all processes that tell it."""
    return sum(one[name] for one in results if name in one)


def elapsed(first: Results, last: Results) -> float:
    """Seconds from the first of these to the last of those."""
    seconds: float = max(one["last_at"] for one in last) - min(one["first_at"] for one in first)
    return max(1e-9, seconds)


def _of_messages(settings: BenchSettings, found: Results) -> dict[str, Any]:
    receivers = [one for one in found if "received" in one]
    senders = [one for one in found if "sent" in one]
    seconds = elapsed(senders or receivers, receivers or senders)
    report: dict[str, Any] = {
        "messages_per_second": total(receivers or senders, "received" if receivers else "sent") / seconds,
        "sent_per_second": total(senders, "sent") / elapsed(senders, senders) if senders else 0.0,
        "elapsed_s": seconds,
        "latency_us": Histogram.merged(receivers).summary(),
        "repeated_dispositions": total(senders, "repeated"),
    }
    for name in ("sent", "received", "lost", "duplicates", "out_of_order", "foreign", "overruns"):
        report[name] = total(found, name)
    outcomes = Histogram.merged(one["outcome"] for one in found if "outcome" in one)
    if outcomes.counts:
        report["outcome_latency_us"] = outcomes.summary()
    return report


def _of_transactions(settings: BenchSettings, found: Results) -> dict[str, Any]:
    seconds = elapsed(found, found)
    report: dict[str, Any] = {"elapsed_s": seconds}
    for name in ("discharged", "committed", "rolled_back", "refused", "late_outcomes", "retired_twice"):
        report[name] = total(found, name)
    report["posted"] = report["discharged"] * settings.in_each
    report["retired"] = report["posted"] if settings.retire else 0
    report["transactions_per_second"] = report["discharged"] / seconds
    report["messages_per_second"] = (report["posted"] + report["retired"]) / seconds
    for name in ("declare_us", "discharge_us", "transaction_us"):
        report[name] = Histogram.merged(one[name] for one in found).summary()
    report["first_refusal"] = next((one["first_refusal"] for one in found if one["first_refusal"]), "")
    # Unsettled retirements of committed transactions are settled by the broker (4.4.2).
    unsettled = settings.retire and not settings.retire_settled
    due = report["committed"] * settings.in_each if unsettled else 0
    report["unsettled_retirements"] = max(0, due - total(found, "settled_retirements")) if due else 0
    report["postings_there"] = _there(found, "posted_there")
    if settings.retire:
        report["input"] = settings.inputs * settings.pairs
        report["input_there"] = _there(found, "input_there")
    return report


def _there(found: Results, name: str) -> dict[str, int]:
    return {each: total((one[name] for one in found), each) for each in ("received", *WRONG)}


def is_clean(settings: BenchSettings, report: dict[str, Any]) -> bool:
    """Every message once and in order, and accepted where an outcome was due. Of transactions: every message
    of a committed one once, none of another, every outcome in time.
    """
    wrong: int = len(report["stalled"])
    due = settings.count
    if settings.transactions:
        due = settings.postings
        wrong += sum(report["postings_there"][name] for name in WRONG)
        # What came back to the input may stand at another place than before.
        wrong += sum(report.get("input_there", {}).get(name, 0) for name in WRONG if name != "out_of_order")
        wrong += report["refused"] + report["late_outcomes"] + report["retired_twice"]
        wrong += report["unsettled_retirements"]
    else:
        wrong += report["lost"] + report["duplicates"] + report["out_of_order"]
    accepted: int = report["outcomes"].get("accepted", 0)
    return wrong == 0 and (settings.settled or accepted >= due * settings.pairs)


def as_text(report: dict[str, Any]) -> str:
    """The report for a terminal."""
    of_transactions = "discharged" in report
    head = _head_of_transactions(report) if of_transactions else _head_of_messages(report)
    lines = [report["settings"], head]
    lines += [
        f"  {label}: " + "  ".join(f"{name} {duration(value)}" for name, value in report[key].items())
        for key, label in LATENCIES.items()
        if key in report
    ]
    lines += _counts_of_transactions(report) if of_transactions else _counts_of_messages(report)
    lines += [f"  {report[name]:,} {text}" for name, text in REMARKS.items() if report.get(name)]
    lines += [f"  {name} made no progress and gave up" for name in report["stalled"]]
    busy = ", ".join(f"{name} {share:.0%}" for name, share in report["busy"].items())
    lines.append(f"  the tool's own share of a core: {busy}")
    if report["bottleneck"]:
        lines.append(
            f"  THE TOOL WAS THE BOTTLENECK ({', '.join(report['bottleneck'])}): the broker can do more"
        )
    return "\n".join(lines)


def _head_of_messages(report: dict[str, Any]) -> str:
    return (
        f"  {report['messages_per_second']:>12,.0f} messages/s received, "
        f"{report['sent_per_second']:,.0f} messages/s sent, {report['elapsed_s']:.2f} s"
    )


def _head_of_transactions(report: dict[str, Any]) -> str:
    retired = f", {report['retired']:,} retired" if report["retired"] else ""
    return (
        f"  {report['transactions_per_second']:>12,.0f} transactions/s, {report['messages_per_second']:,.0f} "
        f"messages/s ({report['posted']:,} posted{retired}), {report['elapsed_s']:.2f} s"
    )


def _counts_of_messages(report: dict[str, Any]) -> list[str]:
    outcomes = ", ".join(f"{count:,} {name}" for name, count in report["outcomes"].items() if count)
    return [
        f"  {report['received']:,} received: {report['lost']:,} lost, {report['duplicates']:,} duplicates, "
        f"{report['out_of_order']:,} out of order",
        f"  outcomes: {outcomes or 'none (sent settled)'}",
    ]


def _counts_of_transactions(report: dict[str, Any]) -> list[str]:
    lines = [
        f"  {report['committed']:,} committed, {report['rolled_back']:,} rolled back as asked, "
        f"{report['refused']:,} refused"
    ]
    if report["first_refusal"]:
        lines.append(f"  first refusal: {report['first_refusal']}")
    lines.append("  posted, found afterwards: " + there(report["postings_there"]))
    if "input_there" in report:
        lines.append(f"  left of {report['input']:,} to be retired: " + there(report["input_there"]))
    return lines


def there(queue: dict[str, int]) -> str:
    """What a queue held at the end, as a phrase."""
    return (
        f"{queue['received']:,} as they must be, {queue['lost']:,} lost, {queue['duplicates']:,} duplicates, "
        f"{queue['out_of_order']:,} out of order, {queue['forbidden']:,} that must not be there, "
        f"{queue['foreign']:,} of other runs"
    )


def duration(microseconds: float) -> str:
    """Microseconds in the unit that fits."""
    if microseconds < 1_000:
        return f"{microseconds:.0f} us"
    if microseconds < 1_000_000:
        return f"{microseconds / 1_000:.1f} ms"
    return f"{microseconds / 1_000_000:.2f} s"
