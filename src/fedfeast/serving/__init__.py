"""What leaves the building: networks taken out of a trained supernet."""
