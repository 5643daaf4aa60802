"""Tokens of API keys and of attempts.

A pass is made from a secret of the home, so that nothing of it is kept: every process that has the
home can read it, before and after a restart. What it opens is decided by the store: it is worth
nothing once the run is no longer held by that epoch, or in another incarnation of the database.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
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


_PASS = re.compile(r"rota_run_([1-9]\d{0,18})_([1-9]\d{0,9})_([A-Za-z0-9_-]{43})", re.ASCII)


def make_pass(secret: bytes, incarnation: str, run_id: int, epoch: int) -> str:
    """Return the pass of an attempt."""
    return f"rota_run_{run_id}_{epoch}_{_proof(secret, incarnation, run_id, epoch)}"


def is_pass(token: str) -> bool:
    """Tell whether a token looks like a pass."""
    return _PASS.fullmatch(token) is not None


def read_pass(secret: bytes, incarnation: str, token: str) -> tuple[int, int] | None:
    """Return the run and the epoch that a pass was made for; None if it was not made here."""
    match = _PASS.fullmatch(token)
    if match is None:
        return None
    run_id, epoch = int(match[1]), int(match[2])
    proof = _proof(secret, incarnation, run_id, epoch)
    return (run_id, epoch) if hmac.compare_digest(proof, match[3]) else None


def _proof(secret: bytes, incarnation: str, run_id: int, epoch: int) -> str:
    words = f"rota-pass\n{incarnation}\n{run_id}\n{epoch}".encode()
    digest = hmac.new(secret, words, hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
