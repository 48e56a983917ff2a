"""What is shown to people: charts, pages, tables."""
