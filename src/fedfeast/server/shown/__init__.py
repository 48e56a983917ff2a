"""What a server shows: runs, which it looks at again and again, and ladders."""
