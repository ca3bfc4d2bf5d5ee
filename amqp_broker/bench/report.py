"""From the processes' results to what the user reads."""

from __future__ import annotations

from typing import Any, Final

from amqp_broker.bench.histogram import Histogram
from amqp_broker.bench.settings import BenchSettings

# Above this share of one core over the whole run, a process of the tool limits the rate, not the broker.
BUSY: Final = 0.9


def combine(settings: BenchSettings, results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One report from the results of the named processes (`sender-0`, `receiver-0`, `round-trips-0`, ...)."""
    receivers = [result for result in results.values() if "received" in result]
    senders = [result for result in results.values() if "sent" in result]
    latencies, outcome_latencies = Histogram(), Histogram()
    for receiver in receivers:
        latencies.merge(receiver["latencies"], receiver["largest"])
        if "outcome_latencies" in receiver:
            outcome_latencies.merge(receiver["outcome_latencies"], receiver["outcome_largest"])
    first = min(sender["first_at"] for sender in senders)
    received = sum(receiver["received"] for receiver in receivers)
    elapsed = max(1e-9, max(receiver["last_at"] for receiver in receivers) - first)
    sending = max(1e-9, max(sender["last_at"] for sender in senders) - first)
    sent = sum(sender["sent"] for sender in senders)
    report: dict[str, Any] = {
        "settings": settings.describe(),
        "messages_per_second": received / elapsed,
        "sent_per_second": sent / sending,
        "elapsed_s": elapsed,
        "sent": sent,
        "latency_us": latencies.summary(),
        "outcomes": {
            name: sum(sender["outcomes"][name] for sender in senders) for name in senders[0]["outcomes"]
        },
        "busy": {name: round(result["cpu_s"] / elapsed, 3) for name, result in results.items()},
        "stalled": sorted(name for name, result in results.items() if result["stalled"]),
    }
    for name in ("received", "lost", "duplicates", "out_of_order", "foreign", "overruns"):
        report[name] = sum(receiver[name] for receiver in receivers)
    report["repeated_dispositions"] = sum(sender["repeated"] for sender in senders)
    if outcome_latencies.counts:
        report["outcome_latency_us"] = outcome_latencies.summary()
    report["bottleneck"] = sorted(name for name, share in report["busy"].items() if share > BUSY)
    return report


def is_clean(settings: BenchSettings, report: dict[str, Any]) -> bool:
    """Every message once, in order, and accepted where an outcome was due."""
    wrong: int = report["lost"] + report["duplicates"] + report["out_of_order"] + len(report["stalled"])
    expected = 0 if settings.settled else settings.count * settings.pairs
    accepted: int = report["outcomes"]["accepted"]
    return wrong == 0 and accepted >= expected


def as_text(report: dict[str, Any]) -> str:
    """The report for a terminal."""
    lines = [
        report["settings"],
        f"  {report['messages_per_second']:>12,.0f} messages/s received, "
        f"{report['sent_per_second']:,.0f} messages/s sent, {report['elapsed_s']:.2f} s",
        percentiles("delivered after", report["latency_us"]),
    ]
    if "outcome_latency_us" in report:
        lines.append(percentiles("outcome after", report["outcome_latency_us"]))
    lines.append(
        f"  {report['received']:,} received: {report['lost']:,} lost, {report['duplicates']:,} duplicates, "
        f"{report['out_of_order']:,} out of order"
    )
    outcomes = ", ".join(f"{count:,} {name}" for name, count in report["outcomes"].items() if count)
    lines.append(f"  outcomes: {outcomes or 'none (sent settled)'}")
    lines += [f"  {report[name]:,} {text}" for name, text in REMARKS.items() if report[name]]
    lines += [f"  {name} made no progress and gave up" for name in report["stalled"]]
    return "\n".join([*lines, *share_of_a_core(report)])


def share_of_a_core(report: dict[str, Any]) -> list[str]:
    """How much the tool itself had to do, and a warning when that was too much."""
    busy = ", ".join(f"{name} {share:.0%}" for name, share in report["busy"].items())
    lines = [f"  the tool's own share of a core: {busy}"]
    if report["bottleneck"]:
        lines.append(
            f"  THE TOOL WAS THE BOTTLENECK ({', '.join(report['bottleneck'])}): the broker can do more"
        )
    return lines


REMARKS: Final = {
    "foreign": "messages of other runs were in the queue",
    "overruns": "transfers came without credit",
    "repeated_dispositions": "deliveries were settled more than once",
}


def percentiles(label: str, summary: dict[str, float]) -> str:
    """One line of percentiles in readable units."""
    return f"  {label}: " + "  ".join(f"{name} {duration(value)}" for name, value in summary.items())


def duration(microseconds: float) -> str:
    """Microseconds in the unit that fits."""
    if microseconds < 1_000:
        return f"{microseconds:.0f} us"
    if microseconds < 1_000_000:
        return f"{microseconds / 1_000:.1f} ms"
    return f"{microseconds / 1_000_000:.2f} s"
