"""Models in the visitor's own browser: the runtime they need, and what is served of it."""
