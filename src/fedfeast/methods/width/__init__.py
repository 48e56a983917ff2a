"""Methods that cut the width of one network."""
