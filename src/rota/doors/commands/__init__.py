"""The commands themselves, one module a noun; see `rota.doors.kit.catalogue`."""
