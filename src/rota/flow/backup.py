"""Back up and restore: a store as it stood, and a store that stands there again.

A restore is a time machine: what happened since the backup is forgotten, and did happen. So slots
since then are not run again but recorded as not caught up, messages that waited are `unknown`, and
runs that were going on are lost to whoever worked on them. `as_it_stood` says that nobody has
worked on the original since the backup; then it goes on where it was.
"""

from __future__ import annotations

from rota.flow.plan import pass_over
from rota.model.backups import Backup, Restored
from rota.ports.store import Backups


async def back_up(store: Backups, path: str, *, force: bool = False) -> Backup:
    """Write a backup of a store, while others go on working."""
    return await store.backup(path, force=force)


async def restore(
    store: Backups, path: str, *, as_it_stood: bool = False, force: bool = False
) -> Restored:
    """Put a backup in the place of a store that nobody has open."""
    return await store.restore(path, None if as_it_stood else pass_over, force=force)
