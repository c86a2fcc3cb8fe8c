"""`python -m aes_exporter` is `aes-exporter`."""

from aes_exporter.cli import main

if __name__ == "__main__":
    main()
