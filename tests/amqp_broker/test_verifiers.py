"""Verifiers: what the configuration keeps instead of passwords."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramMechanism

from amqp_broker.verifiers import (
    HASHES,
    ITERATIONS,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    PasswordError,
    VerifierError,
    make_verifier,
    parse_verifier,
    password_matches,
)

SALT = bytes(range(16))


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_verifier_has_the_keys_that_scramp_makes(mechanism: str) -> None:
    """StoredKey and ServerKey are those of RFC 5802, as another implementation computes them."""
    verifier = make_verifier(mechanism, "pässword", 4_096, SALT)
    info = ScramMechanism(mechanism).make_auth_info("pässword", iteration_count=4_096, salt=SALT)
    assert (verifier.salt, verifier.stored_key, verifier.server_key, verifier.iterations) == info


def test_the_default_is_what_every_client_computes() -> None:
    """Cyrus clients refuse more iterations than 65,536."""
    assert ITERATIONS == 65_536


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_verifier_survives_its_text(mechanism: str) -> None:
    """What `user add` prints is what the configuration reads."""
    verifier = make_verifier(mechanism, "word", 5_000, SALT)
    assert parse_verifier(str(verifier)) == verifier
    assert "word" not in str(verifier)
    assert str(verifier).split("$")[2] not in repr(verifier)


def test_only_the_password_matches() -> None:
    """Wrong, empty and forbidden passwords don't."""
    verifier = make_verifier(SCRAM_SHA_256, "word", 4_096, SALT)
    assert password_matches(verifier, "word")
    for wrong in ("Word", "word ", "", "\0", "wor"):
        assert not password_matches(verifier, wrong)


def test_passwords_that_cannot_be_typed_elsewhere_are_refused() -> None:
    """SASLprep (RFC 4013) forbids control characters, and nothing may be empty."""
    for password in ("", "\u00ad", "a\x07b"):
        with pytest.raises(PasswordError):
            make_verifier(SCRAM_SHA_512, password, 4_096, SALT)


GOOD = str(make_verifier(SCRAM_SHA_256, "word", 4_096, SALT))


@pytest.mark.parametrize(
    "text",
    [
        7,
        "",
        "geheim",
        GOOD.replace("SCRAM-SHA-256", "SCRAM-SHA-1"),
        GOOD.replace("$4096:", "$4095:"),
        GOOD.replace("$4096:", "$99999999999:"),
        GOOD.replace("$4096:", "$-4096:"),
        GOOD.replace("$4096:", "$\u0664096:"),
        GOOD.replace("=", "!"),
        GOOD[:-4],
        GOOD.replace("AAEC", "AA EC"),
        GOOD + "$",
        GOOD.replace("AAECAwQFBgcICQoLDA0ODw==", "AAECAwQ="),
    ],
)
def test_a_broken_verifier_is_refused_without_being_shown(text: object) -> None:
    """The error says what is wrong, and none of its parts."""
    with pytest.raises(VerifierError) as caught:
        parse_verifier(text)
    assert "AAEC" not in str(caught.value)
    assert "geheim" not in str(caught.value)


@given(
    st.text(max_size=80)
    | st.builds(lambda a, b: GOOD[:a] + b + GOOD[a:], st.integers(0, 100), st.text(max_size=3))
)
def test_reading_any_text_ends_in_a_verifier_or_its_own_error(text: str) -> None:
    """Nothing else is ever raised."""
    try:
        parse_verifier(text)
    except VerifierError:
        pass
