"""The console script, and `python -m aes_exporter`. Signals wait until the program is there to handle them.

Importing it takes a good part of a second, in which Ctrl-C would print a traceback, SIGHUP would end the daemon, and
SIGTERM would be lost where this is process 1 of a container.
"""

import signal


def main() -> None:
    """Run the program and end the process with its exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    from aes_exporter import cli  # noqa: PLC0415 (see above)

    cli.main()


if __name__ == "__main__":
    main()
