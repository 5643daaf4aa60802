"""Where secrets are kept: written and named here, never shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rota.model.secrets import SecretView


class Secrets(Protocol):
    """The secrets of this home."""

    def check(self, name: str, value: str) -> None:
        """Raise Invalid unless a secret can be kept so; the value is in no sentence."""

    async def list_secrets(self) -> Sequence[SecretView]:
        """Return every secret that is known, by name."""

    async def put(self, name: str, value: str, by: str) -> SecretView:
        """Keep a secret in place of what had its name; it counts at once."""

    async def remove(self, name: str) -> None:
        """Forget a secret that was kept; NotFound if none was."""
