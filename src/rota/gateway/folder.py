"""The names in the gateway's folder, and the version of what is said there."""

from __future__ import annotations

VERSION = 1
LOCK, CONTROL, DOORS, DOOR, USED = "lock", "control", "doors", "door", "used"
