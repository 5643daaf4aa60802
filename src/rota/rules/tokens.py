"""Tokens: what a key looks like in somebody's hand, and what is kept of it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

SECRET_BYTES = 32
_TOKEN = re.compile(r"rota_[0-9a-f]{8}_([A-Za-z0-9_-]{43})")


def digest_of(secret: bytes) -> str:
    """Return what is kept of a secret. It is random and long, so one round of SHA-256 will do."""
    return hashlib.sha256(secret).hexdigest()


def prefix_of(secret: bytes) -> str:
    """Return the public part of a token, by which people tell keys apart."""
    return f"rota_{digest_of(secret)[:8]}"


def token_of(secret: bytes) -> str:
    """Return the token that carries a secret."""
    text = base64.urlsafe_b64encode(secret).decode().rstrip("=")
    return f"{prefix_of(secret)}_{text}"


def digest_of_token(token: str) -> str | None:
    """Return the digest of a token's secret, or None for what is no token."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        return None
    try:
        secret = base64.urlsafe_b64decode(match[1] + "=")
    except binascii.Error:
        return None
    return digest_of(secret) if token == token_of(secret) else None
