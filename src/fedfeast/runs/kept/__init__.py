"""What a run keeps of what it used: hashes of its network's code and of its data, and its clients' statistics."""
