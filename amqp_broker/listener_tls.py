"""TLS of a listener: its certificates, by the name that a client asks for (SNI), read again when their
files change.

    tls = ListenerTls(config, certificates, "listener[0]")
    secure = trio.SSLStream(stream, tls.context(now), server_side=True)
    tls.shown_on(secure)                    which certificate the client was shown, once hands are shaken
    tls.reload()                            read all files again; what is wrong with them changes nothing

Connections that have TLS keep what they have.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from amqp_broker.configuration import CertificateConfig, ListenerConfig
from amqp_broker.log_setup import logger

LOOK_S: Final = 10.0  # how often the files are looked at, when somebody connects
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"  # of TLS 1.2: forward secrecy and AEAD, as in 1.3

_log = logger("listener")


class ListenError(Exception):
    """A listener cannot be opened: the message names its field, its URL and the system's reason."""


class AddressUnavailable(ListenError):
    """The system does not let the broker listen there, now."""


@attrs.frozen
class _Contexts:
    """What the files said when they were read; `client_ca` is who may issue clients' certificates."""

    usual: ssl.SSLContext
    by_name: dict[str, ssl.SSLContext]
    shown: dict[ssl.SSLContext, str] = attrs.field(repr=False)
    client_ca: str | None = attrs.field(repr=False)


class ListenerTls:
    """The TLS of one listener. Raises ListenError for files that cannot be used."""

    def __init__(self, config: ListenerConfig, certificates: Sequence[CertificateConfig], field: str) -> None:
        self._config = config
        self._certificates = tuple(certificates)
        self._field = field
        self._looked_at = float("-inf")
        self.versions = self._versions_of_files()
        """Which files were read last."""
        self._contexts = self._read()

    def _read(self) -> _Contexts:
        """The files as they are now. Raises ListenError."""
        usual = tls_context_of(self._config, self._field)
        client_ca = None if self._config.client_ca_file is None else _text_of(self._config.client_ca_file)
        assert self._config.certificate_file is not None, "a listener with TLS has one"
        shown = {usual: _text_of(self._config.certificate_file)}
        by_name: dict[str, ssl.SSLContext] = {}
        for index, one in enumerate(self._certificates):
            context = _context_of(self._config, self._field, one, f"certificate[{index}]")
            shown[context] = _text_of(one.certificate_file)
            by_name |= {name.lower(): context for name in one.server_names}
        usual.sni_callback = self._choose
        return _Contexts(usual, by_name, shown, client_ca)

    def is_as(self, other: ListenerTls) -> bool:
        """Whether both come of the same configuration and the same files."""
        mine = self._config, self._certificates, self.versions
        return mine == (other._config, other._certificates, other.versions)

    def reload(self) -> None:
        """Read all files again. Raises ListenError; nothing has changed then."""
        versions = self._versions_of_files()
        self._contexts = self._read()
        self.versions = versions

    def context(self, now: float) -> ssl.SSLContext:
        """For a connection that begins at `now`. Files that have changed are read; where they can't be
        used, those that were read before go on.
        """
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            versions = self._versions_of_files()
            if versions != self.versions:
                self.versions = versions
                self._try_to_reload()
        return self._contexts.usual

    def shown_on(self, secure: Any) -> str | None:
        """The certificate that a client was shown on this `trio.SSLStream`, as PEM."""
        return self._contexts.shown.get(secure.context)

    @property
    def client_ca(self) -> str | None:
        """What was read last of `client_ca_file`."""
        return self._contexts.client_ca

    def client_ca_on(self, secure: Any) -> str | None:
        """That by which a client's certificate was verified on this `trio.SSLStream`; None where another one
        was read since.
        """
        return self._contexts.client_ca if secure.context in self._contexts.shown else None

    def _try_to_reload(self) -> None:
        try:
            self.reload()
        except ListenError as error:
            _log.error("listener.certificates_unusable", url=self._config.url, reason=str(error))
        else:
            _log.info("listener.certificates_reloaded", url=self._config.url)

    def _choose(self, secure: Any, server_name: str | None, context: ssl.SSLContext) -> None:
        """The certificate of the name, or of its domain (`*.example.org`); otherwise that of the listener."""
        by_name = self._contexts.by_name
        if server_name is not None:
            name = server_name.lower()
            chosen = by_name.get(name) or by_name.get(f"*.{name.partition('.')[2]}")
            if chosen is not None:
                secure.context = chosen

    def _versions_of_files(self) -> list[object]:
        files = [self._config.certificate_file, self._config.key_file, self._config.client_ca_file]
        for one in self._certificates:
            files += [one.certificate_file, one.key_file]
        return [_version_of(file) for file in files if file is not None]


def _version_of(file: str) -> object:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _text_of(file: str) -> str:
    return Path(file).read_text("ascii", "replace")


def tls_context_of(config: ListenerConfig, field: str = "listener") -> ssl.SSLContext:
    """The TLS settings of a listener.  Raises ListenError for files that cannot be used."""
    return _context_of(config, field, config, field)


def _context_of(
    config: ListenerConfig, field: str, keys: ListenerConfig | CertificateConfig, keys_field: str
) -> ssl.SSLContext:
    assert keys.certificate_file is not None and keys.key_file is not None, "the configuration has seen both"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(keys.certificate_file, keys.key_file, password=_no_password)
    except (OSError, ValueError) as error:
        names = f"{keys.certificate_file} with key_file {keys.key_file}"
        raise ListenError(f"{keys_field}.certificate_file = {names}: cannot be used: {error}") from error
    if config.client_ca_file is not None:
        try:
            context.load_verify_locations(config.client_ca_file)
        except (OSError, ValueError) as error:
            raise ListenError(
                f"{field}.client_ca_file = {config.client_ca_file}: cannot be used: {error}"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED if config.require_client_certificate else ssl.CERT_OPTIONAL
    return context


def _no_password() -> str:
    """OpenSSL would ask on the terminal, where a broker has nobody to answer."""
    raise ValueError("the key is encrypted; a broker cannot ask for its password")
