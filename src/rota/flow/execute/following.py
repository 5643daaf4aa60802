"""Following an agent's session: its name, and the tokens used in it by all attempts together."""

from __future__ import annotations

from rota.model.keeping import KeptSession
from rota.model.said import Said, Session, Usage
from rota.rules.wishes import is_session


class Following:
    """Knows what the next run goes on in, from what the agent says."""

    def __init__(self, agent: str, resumed: KeptSession | None) -> None:
        self._agent = agent
        self._now = resumed
        self._recorded = resumed

    def note(self, said: Said) -> None:
        """Take what was said into account."""
        known = self._now
        if isinstance(said, Session) and is_session(said.id):
            if known is None or known.id != said.id:
                self._now = KeptSession(self._agent, said.id)
        elif isinstance(said, Usage) and known is not None:
            self._now = known._replace(
                input=known.input + said.input,
                output=known.output + said.output,
                cached=known.cached + said.cached,
            )

    def news(self) -> KeptSession | None:
        """Return the session, if it is not what is on record."""
        return None if self._now == self._recorded else self._now

    def recorded(self) -> None:
        """Note that it is on record now."""
        self._recorded = self._now
