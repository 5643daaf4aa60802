"""The verbs, in the order of the data: define, plan, claim, execute, settle, deliver, observe."""
