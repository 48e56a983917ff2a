"""Published data sets with clients of their own: speakers, people, roles."""
