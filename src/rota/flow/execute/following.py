"""Following an agent's session: its name, and the tokens used in it by all attempts together."""

from __future__ import annotations

from rota.model.keeping import KeptSession
from rota.model.said import Said, Session, Usage
from rota.model.wishes import SessionContext, Wish
from rota.ports.agent import Agent
from rota.rules.wishes import is_session


class Following:
    """Knows what the next run goes on in, from what the agent says."""

    def __init__(self, agent: str, resumed: KeptSession | None, *, shared: bool = True) -> None:
        self._agent = agent
        self._shared = shared
        self._was = "" if resumed is None else resumed.id
        self._now = resumed
        self._told: KeptSession | None = None
        self._recorded: KeptSession | None = None

    @classmethod
    def of(cls, agent: Agent, resumed: KeptSession | None, wish: Wish) -> Following | None:
        """Return what follows an agent that can go on later; the others have no sessions."""
        shared = wish.context is SessionContext.GROUP
        return cls(agent.name, resumed, shared=shared) if agent.abilities.resume else None

    def note(self, said: Said) -> None:
        """Take what was said into account."""
        known = self._now
        if isinstance(said, Session) and is_session(said.id):
            if known is None or known.id != said.id:
                self._now = KeptSession(self._agent, said.id, was=self._was, shared=self._shared)
        elif isinstance(said, Usage) and known is not None:
            self._now = known._replace(
                input=known.input + said.input,
                output=known.output + said.output,
                cached=known.cached + said.cached,
            )
        else:
            return
        self._told = self._now

    def news(self) -> KeptSession | None:
        """Return the session the agent has told of, if it is not what is on record."""
        return None if self._told == self._recorded else self._told

    def recorded(self) -> None:
        """Note that it is on record now."""
        self._recorded = self._told
