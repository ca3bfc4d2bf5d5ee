"""An issuer of tokens for tests: its key, its JWKS, and what it signs."""

from __future__ import annotations

import json
import time
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

ISSUER = "https://issuer.example/"
AUDIENCE = "amqp-broker"


@cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    """The key of this name: made once, since that takes a while."""
    return rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


@cache
def ec_key(name: str) -> ec.EllipticCurvePrivateKey:
    """As `rsa_key`, of another kind."""
    return ec.generate_private_key(ec.SECP256R1())


def jwks(**names: str) -> dict[str, Any]:
    """A set of public keys, by key ids with names of keys: `k1="one"`. RSA, or EC where the id begins so."""
    keys = []
    for key_id, name in names.items():
        if key_id.startswith("ec"):
            told = ECAlgorithm.to_jwk(ec_key(name).public_key(), as_dict=True) | {"alg": "ES256"}
        else:
            told = RSAAlgorithm.to_jwk(rsa_key(name).public_key(), as_dict=True) | {"alg": "RS256"}
        keys.append(told | {"kid": key_id, "use": "sig"})
    return {"keys": keys}


def write_jwks(file: Path, **names: str) -> str:
    """The file with `jwks`; its path."""
    file.write_text(json.dumps(jwks(**names)))
    return str(file)


def token(
    name: str | None = "ada",
    *,
    key: Any = None,
    algorithm: str = "RS256",
    kid: str | None = "k1",
    **claims: Any,
) -> str:
    """A signed token; a claim that is None is left out."""
    told = {"iss": ISSUER, "aud": AUDIENCE, "sub": name, "exp": int(time.time()) + 300, **claims}
    told = {claim: value for claim, value in told.items() if value is not None}
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode(told, rsa_key("one") if key is None else key, algorithm, headers=headers)
