"""Methods whose clients are given fewer channels or fewer single weights of one network."""
