"""``python -m queuewise``: the command line."""

from .cli import main

main()
