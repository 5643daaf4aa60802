"""The stages: define, plan, claim, attempt, settle, deliver, maintain; and read-only views."""
