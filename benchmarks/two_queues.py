"""The system that most of the dispatching wing is timed on: two servers, rates 5 and 10."""

RATES = (5.0, 10.0)
ARRIVAL_RATE = 13.5
