"""The person: command line, tables, pictures."""
