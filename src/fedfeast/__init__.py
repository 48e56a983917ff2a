"""fedfeast."""
