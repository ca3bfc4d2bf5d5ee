"""`amqp-broker doctor`: what a configuration opens to whom, which limits are off, what the disk promises.

Nothing is started and nothing changed. Lines that begin with `!` are worth a second look.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Final

import attrs

from amqp_broker.authentication import Authenticator
from amqp_broker.authorisation import ANONYMOUS_NAME, ANY_USER
from amqp_broker.configuration import DEFAULT_POLICY, BrokerConfig, ListenerConfig, QueuePolicy
from amqp_broker.configuration_fields import Allowed
from amqp_broker.peers import PeerInfo

WORTH_A_LOOK: Final = "! "
FINE: Final = "  "
GIB: Final = 1_024**3
LITTLE_DISK_BYTES: Final = GIB  # a few of the largest messages, and the write-ahead log


def diagnosis(config: BrokerConfig) -> list[str]:
    """The lines to print. Raises ConfigurationError where a start would."""
    authenticator = Authenticator(config)
    lines: list[str] = []
    for title, told in (
        ("Who can connect", _listeners(config, authenticator)),
        ("Who may do what", _rights(config)),
        ("Limits", _limits(config)),
        ("The disk", _disk(config)),
    ):
        lines += [title, *told]
    return lines


def _listeners(config: BrokerConfig, authenticator: Authenticator) -> Iterator[str]:
    for listener in config.listeners:
        where = "this machine only" if listener.loopback else "other machines, too"
        yield f"{FINE}{listener.url}: from {where}{_transport(listener)}"
        if not listener.tls:
            yield f"{FINE}  in the clear: {_mechanisms(authenticator, listener, tls=False)}"
        if listener.certificate_file is not None:
            yield f"{FINE}  inside TLS: {_mechanisms(authenticator, listener, tls=True)}"
        if not listener.tls and not listener.loopback:
            yield f"{WORTH_A_LOOK}  without TLS messages are readable on the way"
        if config.anonymous_allowed(listener) and not listener.loopback:
            yield f"{WORTH_A_LOOK}  who does not log in gets in from other machines"
        if listener.client_ca_file is not None and not listener.require_client_certificate:
            yield f"{FINE}  clients may show a certificate, and need none"
        if listener.origins:
            yield f"{FINE}  pages in browsers may connect from {', '.join(listener.origins)}"


def _transport(listener: ListenerConfig) -> str:
    if listener.tls:
        return ", inside TLS"
    asked = ", and inside TLS for who asks for it" if listener.certificate_file is not None else ""
    return f", in the clear{asked}"


def _mechanisms(authenticator: Authenticator, listener: ListenerConfig, *, tls: bool) -> str:
    offered = authenticator.mechanisms_for(listener, PeerInfo(listener, "", "", tls=tls))
    names = list(offered)
    if tls and listener.client_ca_file is not None:
        names.insert(0, "EXTERNAL for certificates of users")
    return ", ".join(names) or "nobody can log in"


def _rights(config: BrokerConfig) -> Iterator[str]:
    if config.open_access:
        yield f"{WORTH_A_LOOK}whoever connects may do everything: no user, rule or issuer is configured"
        return
    for rule in config.access_rules:
        whom = [_named(user) for user in rule.users] + [f"the role {role}" for role in rule.roles]
        everybody = {ANY_USER, ANONYMOUS_NAME} & set(rule.users)
        mark = WORTH_A_LOOK if everybody else FINE
        yield f"{mark}{', '.join(whom)}: {', '.join(rule.actions)} at {', '.join(rule.nodes)}"
    named = {user for rule in config.access_rules for user in rule.users}
    roles = {role for rule in config.access_rules for role in rule.roles}
    for user in config.users:
        if user.name not in named and not roles & set(user.roles) and ANY_USER not in named:
            yield f"{WORTH_A_LOOK}{user.name} can log in, and may do nothing, not even connect"
    for issuer in config.token_issuers:
        who = "whoever it proves" if issuer.any_user else "users of this configuration"
        mark = WORTH_A_LOOK if issuer.any_user else FINE
        yield f"{mark}tokens of {issuer.issuer}: {who}"


def _named(user: str) -> str:
    return {ANY_USER: "everybody", ANONYMOUS_NAME: "who does not log in"}.get(user, user)


def _limits(config: BrokerConfig) -> Iterator[str]:
    off = [
        field.name
        for field in attrs.fields(type(config.limits))
        if isinstance(field.validator, Allowed)
        and "0 for no bound" in field.validator.words
        and getattr(config.limits, field.name) == 0
    ]
    usual = [
        field.name
        for field in attrs.fields(type(config.limits))
        if getattr(config.limits, field.name) != field.default
    ]
    yield f"{FINE}off: {', '.join(off) or 'none'}"
    yield f"{FINE}other than by default: {', '.join(usual) or 'none'}"
    for policy in (*config.queue_policies, DEFAULT_POLICY):
        if _unbounded(policy):
            what = "all other queues" if policy is DEFAULT_POLICY else f"queues {policy.pattern}"
            yield f"{WORTH_A_LOOK}{what} may grow until the disk is full: neither max_messages nor max_bytes"


def _unbounded(policy: QueuePolicy) -> bool:
    return not (policy.max_messages or policy.max_bytes or policy.ring_messages or policy.ring_bytes)


def _disk(config: BrokerConfig) -> Iterator[str]:
    if config.memory:
        yield f"{WORTH_A_LOOK}everything is in memory: nothing outlives the broker"
        return
    yield f"{FINE}what is accepted is committed and synced first, in {config.data_dir}"
    if config.allow_unsafe_sqlite:
        yield f"{WORTH_A_LOOK}allow_unsafe_sqlite: a SQLite that can damage the store is taken"
    place = config.data_dir
    if not os.path.isdir(place):
        yield f"{FINE}the directory is not there yet; the broker makes it, for its own user only"
        place = os.path.dirname(os.path.abspath(place))
    elif os.stat(place).st_mode & 0o077:
        yield f"{WORTH_A_LOOK}other users of this machine may look into {place}"
    if os.path.isdir(place):
        free = shutil.disk_usage(place).free
        mark = WORTH_A_LOOK if free < LITTLE_DISK_BYTES else FINE
        yield f"{mark}{free / GIB:.1f} GiB are free there"
    yield f"{FINE}the store is not encrypted: put it on a disk that is"
