"""Tokens of API keys and of attempts.

An attempt token is derived from a secret of the home and not stored, so that every process with
access to the home can verify it, also after a restart. Its rights are decided by the store: it is
invalid once the run is no longer held under its epoch, and in another incarnation of the database.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re

SECRET_BYTES = 32
_TOKEN = re.compile(r"rota_[0-9a-f]{8}_([A-Za-z0-9_-]{43})")


def secret_digest(secret: bytes) -> str:
    """Return what is stored of a secret: one round of SHA-256, as it is random and long."""
    return hashlib.sha256(secret).hexdigest()


def token_prefix(secret: bytes) -> str:
    """Return the public part of a token, which identifies a key to people."""
    return f"rota_{secret_digest(secret)[:8]}"


def key_token(secret: bytes) -> str:
    """Return the token of a key's secret."""
    text = base64.urlsafe_b64encode(secret).decode().rstrip("=")
    return f"{token_prefix(secret)}_{text}"


def token_digest(token: str) -> str | None:
    """Return the digest of a token's secret, or None if it is not a token."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        return None
    try:
        secret = base64.urlsafe_b64decode(match[1] + "=")
    except binascii.Error:
        return None
    return secret_digest(secret) if token == key_token(secret) else None


_ATTEMPT_TOKEN = re.compile(
    r"rota_run_([1-9]\d{0,18})_([1-9]\d{0,9})_([A-Za-z0-9_-]{43})", re.ASCII
)


def make_attempt_token(secret: bytes, incarnation: str, run_id: int, epoch: int) -> str:
    """Return the token of an attempt."""
    return f"rota_run_{run_id}_{epoch}_{_proof(secret, incarnation, run_id, epoch)}"


def is_attempt_token(token: str) -> bool:
    """Whether a token has the form of an attempt token."""
    return _ATTEMPT_TOKEN.fullmatch(token) is not None


def read_attempt_token(secret: bytes, incarnation: str, token: str) -> tuple[int, int] | None:
    """Return the run and epoch of an attempt token, or None if it is not valid for this home."""
    match = _ATTEMPT_TOKEN.fullmatch(token)
    if match is None:
        return None
    run_id, epoch = int(match[1]), int(match[2])
    proof = _proof(secret, incarnation, run_id, epoch)
    return (run_id, epoch) if hmac.compare_digest(proof, match[3]) else None


def _proof(secret: bytes, incarnation: str, run_id: int, epoch: int) -> str:
    message = f"rota-pass\n{incarnation}\n{run_id}\n{epoch}".encode()
    digest = hmac.new(secret, message, hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
