"""The `[[half_group]]` tables: how the half messages of a producer group are checked back."""

from __future__ import annotations

from typing import Any, Final

import attrs

from amqp_broker.addresses import is_group_name
from amqp_broker.configuration_fields import ConfigurationError, one_of, shown, whole_number, wrong
from amqp_broker.coordinator import PARK_POLICY, ROLLBACK_POLICY, HalfSettings

DAY_MS: Final = 86_400_000
YEAR_MS: Final = 365 * DAY_MS
DEFAULTS: Final = HalfSettings()


def _group_name(instance: Any, field: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, str) or not is_group_name(value):
        raise wrong(field, value, "must be 1 to 64 of A-Z a-z 0-9 . _ -")


def _milliseconds(default: int, low: int, high: int) -> Any:
    return attrs.field(default=default, validator=whole_number(low, high, "milliseconds"))


@attrs.frozen(kw_only=True)
class HalfGroupConfig:
    """One `[[half_group]]`. After `max_attempts` unknown answers, or at the maximum age, `policy` rolls back
    or parks. Decisions are remembered for `tombstone_ms`.
    """

    name: str = attrs.field(validator=_group_name)
    first_check_ms: int = _milliseconds(DEFAULTS.first_check_ms, 1, YEAR_MS)
    max_age_ms: int = _milliseconds(DEFAULTS.max_age_ms, 1, YEAR_MS)
    retry_ms: int = _milliseconds(DEFAULTS.retry_ms, 1, DAY_MS)
    retry_max_ms: int = _milliseconds(DEFAULTS.retry_max_ms, 1, YEAR_MS)
    max_attempts: int = attrs.field(default=DEFAULTS.max_attempts, validator=whole_number(1, 62, "answers"))
    lock_ms: int = _milliseconds(DEFAULTS.lock_ms, 100, DAY_MS)
    max_pending: int = attrs.field(
        default=DEFAULTS.max_pending, validator=whole_number(1, 10_000_000, "half messages")
    )
    tombstone_ms: int = _milliseconds(DEFAULTS.tombstone_ms, 1_000, 10 * YEAR_MS)
    policy: str = attrs.field(default=ROLLBACK_POLICY, validator=one_of(ROLLBACK_POLICY, PARK_POLICY))

    def __attrs_post_init__(self) -> None:
        for lower, higher in (("first_check_ms", "max_age_ms"), ("retry_ms", "retry_max_ms")):
            low, high = getattr(self, lower), getattr(self, higher)
            if low > high:
                raise ConfigurationError(lower, shown(low), f"must be at most {higher}, which is {high}")

    def settings(self) -> HalfSettings:
        """As the group wants them."""
        fields = attrs.asdict(self)
        del fields["name"]
        return HalfSettings(**fields)
