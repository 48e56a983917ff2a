"""``python -m fedfeast``, and with it ``torchrun -m fedfeast``."""

from fedfeast.app.cli import main

if __name__ == "__main__":
    main()
