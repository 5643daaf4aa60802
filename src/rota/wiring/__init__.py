"""The one place that knows everything: settings, stores by address, logging."""
