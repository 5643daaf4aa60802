"""Pure decisions: functions of facts and a given now, without I/O."""
