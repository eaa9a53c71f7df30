"""Replay: recorded traffic on every dispatching policy, to see what would have happened.

    from queuewise.replay import read_log, replay

    log = read_log("requests.csv", time="timestamp", size="tokens")
    found = replay(log, rates=[900, 1500, 1500], load=0.8)
    print(found.sentence)

A *log* says when jobs came and how much work each was; *servers* are given by their rates, by a file of drifting rates, or
estimated from the log where it names who served each job. Every policy then meets the same jobs at the same times. What
``queuewise serve`` recorded is a log too: ``read_recording("recordings", group="chat")``.
"""

from .logs import Drift, Log, Recorded, read_log, read_rates
from .recordings import read_recording, read_traffic
from .replay import DEFAULT_POLICIES, Replay, Standing, parse_policy, parse_slots, parse_where, replay

__all__ = [
    "DEFAULT_POLICIES",
    "Drift",
    "Log",
    "Recorded",
    "Replay",
    "Standing",
    "parse_policy",
    "parse_slots",
    "parse_where",
    "read_log",
    "read_rates",
    "read_recording",
    "read_traffic",
    "replay",
]
