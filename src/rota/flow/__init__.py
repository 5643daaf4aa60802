"""The verbs, in the order of the data: define, plan, claim, settle, deliver, then the repairs."""
