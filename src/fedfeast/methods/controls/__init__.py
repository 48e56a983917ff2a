"""What methods are compared with: no network is shared between sizes."""
