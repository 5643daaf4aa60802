"""Says no for what is not installed, so that nothing waits for it in silence."""
