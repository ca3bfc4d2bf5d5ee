"""Whose connection ends when users and rules are read again.

A connection goes on while what proved its user still does, and its user may do all that it was allowed. Its
user has new roles, and so more rights, at once. Otherwise it ends: what its links do was allowed by rights
that are gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from amqp_broker.authentication import TOKEN_MECHANISMS, Authenticator
from amqp_broker.authorisation import Principal, authoriser_of
from amqp_broker.configuration import BrokerConfig
from amqp_broker.peers import PeerInfo

CONDITION: Final = "amqp:unauthorized-access"


class LoginChanges:
    """What changes from one configuration to another for who is logged in."""

    def __init__(
        self, before: BrokerConfig, after: BrokerConfig, authenticator: Authenticator,
        authorities: Mapping[str | None, str | None] | None = None,
    ) -> None:  # fmt: skip
        """`authenticator` is that of the new configuration, `authorities` what stands in each
        `client_ca_file` now.
        """
        self._authenticator = authenticator
        self._authorities = authorities or {}
        self._takes: dict[tuple[tuple[str, ...], tuple[str, ...]], bool] = {}
        """Whether something is taken from who had these subjects of rules, and has those."""
        self.authoriser = authoriser_of(after)
        self._authoriser_before = authoriser_of(before)
        self._after = after
        self._users_before = {user.name: user for user in before.users}
        self._users = {user.name: user for user in after.users}
        self._issuers_stay = {*before.token_issuers} <= {*after.token_issuers}
        self._any = _told_of_logins(before) != _told_of_logins(after)
        """Whether anything changes for anybody, but for what certificates are verified by."""

    def renewed(self, principal: Principal) -> Principal:
        """The same one, with the roles that it has now."""
        user, before = self._users.get(principal.name), self._users_before.get(principal.name)
        if principal.anonymous or (user is None and before is None):
            return principal
        own = () if before is None else before.roles
        others = [role for role in principal.roles if role not in own]
        roles = dict.fromkeys([*(() if user is None else user.roles), *others])
        return attrs.evolve(principal, roles=tuple(roles))

    def why_ended(self, principal: Principal, peer: PeerInfo) -> str:
        """Why a connection ends, for its peer, whose `listener` is the new one; empty: it goes on."""
        reason = self._why_not_admitted(principal.mechanism, peer)
        if not reason and self._any:
            reason = self._why_not_proved(principal, peer)
            if not reason and self._takes_from(principal):
                reason = "may do less than before"
        return reason and f"{principal.rule_name!r} {reason}: the configuration was reloaded"

    def why_not_logged_in(self, peer: PeerInfo) -> str:
        """Why a connection ends that is logging in; empty: it goes on."""
        ends = self._any or self._why_not_admitted("", peer)
        return "the configuration was reloaded during the login: log in again" if ends else ""

    def _takes_from(self, principal: Principal) -> bool:
        renewed = self.renewed(principal)
        key = principal.subjects, renewed.subjects
        if key not in self._takes:
            self._takes[key] = self.authoriser.takes_from(self._authoriser_before, principal, renewed)
        return self._takes[key]

    def _why_not_admitted(self, mechanism: str, peer: PeerInfo) -> str:
        """What TLS would say now: of who has no certificate where one is required, and of one that was
        verified by something else.
        """
        listener = peer.listener
        if not peer.tls:
            return ""
        if peer.certificate is None:
            return "has to show a certificate now" if listener.require_client_certificate else ""
        counts = listener.require_client_certificate or mechanism in ("", "EXTERNAL")
        if counts and self._authorities.get(listener.client_ca_file) != peer.client_ca:
            return "has a certificate that was verified by another client_ca_file"
        return ""

    def _why_not_proved(self, principal: Principal, peer: PeerInfo) -> str:
        if principal.anonymous:
            allowed = self._after.anonymous_allowed(peer.listener)
            return "" if allowed else "has to log in now"
        before, user = (users.get(principal.name) for users in (self._users_before, self._users))
        if before is not None and user is None:
            return "is no user any more"
        if principal.mechanism in TOKEN_MECHANISMS:
            return "" if self._issuers_stay else "has a token of an issuer that was changed"
        assert before is not None and user is not None, "who has no token is a user"
        if principal.mechanism == "EXTERNAL" and self._authenticator.owner_of(peer) != principal.name:
            return "has a certificate that is not the user's any more"
        same = attrs.evolve(before, roles=()) == attrs.evolve(user, roles=())
        return "" if same else "has to log in again: what proves the user was changed"


def _told_of_logins(config: BrokerConfig) -> tuple[object, ...]:
    listeners = [(each.anonymous, each.plain_without_tls) for each in config.listeners]
    return config.users, config.access_rules, config.token_issuers, listeners
