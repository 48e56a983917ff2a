"""From clients' replies to the next global vector: checks, rules, privacy."""
