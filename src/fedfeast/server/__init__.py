"""The model server: a trained run's networks over HTTP, and a page for people."""
