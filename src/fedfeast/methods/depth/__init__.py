"""Methods that cut the depth of one network, or its depth and width."""
