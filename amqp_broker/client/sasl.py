"""SASL on the client's side: which of the offered mechanisms, and its steps (5.3, RFC 5802).

login = Login(settings, endpoint)
mechanism, initial_response = login.choose(offered)
response = login.respond(challenge)                   # once for each challenge
login.succeeded(additional_data)                      # raises unless the server proved itself as well
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from amqp_broker.client.errors import LoginRefused
from amqp_broker.client.settings import ClientSettings, Endpoint

SCRAM: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1")
PLUS: Final = "-PLUS"
BOUND: Final = tuple(mechanism + PLUS for mechanism in SCRAM)
TOKEN: Final = ("OAUTHBEARER", "XOAUTH2")
ITERATIONS_MAX: Final = 1_000_000  # a second of hashing; a peer that wants more only keeps us busy


class Login:
    """One attempt to log in. With a token: that. With a user: SCRAM, bound to the TLS connection where the
    peer offers that, else PLAIN where nobody listens on the way. Without one: EXTERNAL over TLS where it is
    offered, else ANONYMOUS.
    """

    def __init__(self, settings: ClientSettings, endpoint: Endpoint) -> None:
        self.user = settings.user
        self.mechanism = ""
        self._password = settings.password or ""
        self._token = settings.token
        self._endpoint = endpoint
        self._tls = endpoint.tls
        self._plain = endpoint.tls or endpoint.loopback or settings.plain_without_tls
        self._scram: Any = None
        self._proved = False

    def __repr__(self) -> str:
        return f"<Login {self.user!r} {self.mechanism or 'not begun'}>"

    def choose(self, offered: Sequence[str]) -> tuple[str, bytes | None]:
        """The mechanism and its initial response. Raises LoginRefused when none of the offered will do."""
        for mechanism in self._wanted():
            if mechanism in offered:
                self.mechanism = mechanism
                return mechanism, self._initial_response()
        raise LoginRefused(
            f"expected one of {', '.join(self._wanted())} for {self._whom()}, "
            f"but the peer offers {', '.join(offered) or 'nothing'}"
            + ("" if self._plain or (self.user is None and self._token is None) else f" ({self._needs})")
        )

    def respond(self, challenge: bytes) -> bytes:
        """The response to a challenge. Raises LoginRefused for one that makes no sense."""
        if self.mechanism in TOKEN and not self._proved:
            self._proved = True  # what comes next is the failure
            return b"\1"
        if self._scram is None:
            raise LoginRefused(f"expected the outcome of {self.mechanism}, but a challenge came")
        from scramp import ScramException

        try:
            text = challenge.decode()
            if text.startswith(("v=", "e=")):
                self._prove(text)
                return b""
            self._scram.set_server_first(text)
            iterations = [int(part[2:]) for part in text.split(",") if part.startswith("i=")]
            if max(iterations) > ITERATIONS_MAX:
                wanted = f"but the peer wants {max(iterations)}"
                raise LoginRefused(
                    f"expected at most {ITERATIONS_MAX} iterations of {self.mechanism}, {wanted}"
                )
            final: str = self._scram.get_client_final()
            return final.encode()
        except (ScramException, ValueError) as error:
            raise LoginRefused(f"expected a message of {self.mechanism}, but: {error}") from None

    def succeeded(self, additional_data: bytes | None) -> None:
        """The outcome was good. Raises LoginRefused unless the server of SCRAM proved what it knows."""
        if self._scram is None or self._proved:
            return
        from scramp import ScramException

        try:
            self._prove((additional_data or b"").decode())
        except (ScramException, ValueError) as error:
            raise LoginRefused(f"the peer did not prove that it knows {self._whom()}: {error}") from None

    def refused(self, code: int) -> LoginRefused:
        """The error for an outcome that is not good (5.3.3.6)."""
        why = {1: "wrong user or password", 2: "a fault of the peer", 3: "a fault of the peer that stays"}
        return LoginRefused(
            f"the peer refused {self.mechanism} of {self._whom()}: "
            f"code {code}, {why.get(code, 'a fault of the peer that will pass')}"
        )

    def _wanted(self) -> tuple[str, ...]:
        if self._token is not None:
            return TOKEN if self._plain else ()
        if self.user is None:
            return ("EXTERNAL", "ANONYMOUS") if self._tls else ("ANONYMOUS",)
        scram = SCRAM if self._binding() is None else (*BOUND, *SCRAM)
        return (*scram, "PLAIN") if self._plain else scram

    @property
    def _needs(self) -> str:
        return "PLAIN needs TLS" if self._token is None else "a token needs TLS"

    def _binding(self) -> tuple[str, Any] | None:
        """What binds SCRAM to the TLS connection (RFC 5929); None where there is none, or its certificate
        has no hash that both sides would take.
        """
        if self._endpoint.channel is None:
            return None
        from scramp import ScramClient, ScramException

        binding = ("tls-server-end-point", self._endpoint.channel)
        try:
            ScramClient([SCRAM[0]], "user", "word", channel_binding=binding)
        except ScramException:
            return None
        return binding

    def _whom(self) -> str:
        if self._token is not None and self.user is None:
            return "the token"
        return "nobody (no user is given)" if self.user is None else f"user {self.user!r}"

    def _initial_response(self) -> bytes | None:
        if self.mechanism == "PLAIN":
            return f"\0{self.user}\0{self._password}".encode()
        if self.mechanism in TOKEN:
            return self._bearer().encode()
        if self.mechanism in (*SCRAM, *BOUND):
            # Loads half of asyncio; whoever does not need it does not pay for it.
            from scramp import ScramClient, ScramException

            try:
                self._scram = ScramClient(
                    [self.mechanism], self.user, self._password, channel_binding=self._binding()
                )
                first: str = self._scram.get_client_first()
            except ScramException as error:
                raise LoginRefused(f"{self._whom()} cannot be used with {self.mechanism}: {error}") from None
            return first.encode()
        return b"" if self.mechanism == "EXTERNAL" else b"anonymous"

    def _bearer(self) -> str:
        """What OAUTHBEARER (RFC 7628) and XOAUTH2 say."""
        if self.mechanism == "XOAUTH2":
            return f"user={self.user or ''}\1auth=Bearer {self._token}\1\1"
        identity = "" if self.user is None else "a=" + self.user.replace("=", "=3D").replace(",", "=2C")
        where = f"host={self._endpoint.host}\1port={self._endpoint.port}"
        return f"n,{identity},\1{where}\1auth=Bearer {self._token}\1\1"

    def _prove(self, text: str) -> None:
        self._scram.set_server_final(text)
        self._proved = True
