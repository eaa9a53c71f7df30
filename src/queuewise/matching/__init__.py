"""Several queues at once: Q-UCB's matchings of users to servers, beside the system that knows the rates.

U users, each with a queue, and K ≥ U servers in slotted time. In every slot each user is matched to a server of its own. Then
each user's job arrives with its probability, and then its server succeeds with probability μ[u, k]; a success takes a job
away if there is one, and is seen in any case. Q-UCB (Krishnasamy, Sen, Johari and Shakkottai, "Regret of Queueing Bandits",
2016; "Learning Unknown Service Rates in Queues", 2021; Algorithm 1) explores and otherwise matches by upper confidence bounds:

- slots 1 to K: a round robin, user u at server (u + slot − 1) mod K;
- later, s slots done: with probability min(1, 3K ln²(s)/s) such a cyclic matching, drawn uniformly;
- else a matching by the indices mean[u, k] + √(ln²(s)/(2 N[u, k])).

The paper's matching gives as many users as possible their largest index ("cardinality"). It leaves open who gets a server that
several of them want, and what the others get. Here `conflict` says who, "first" (lowest number, as in the published runs),
"largest" (largest index) or "random"; the others take the best of what is left, in order of their numbers. "greedy" is another
matching: again and again the pair with the largest index among the users and servers that are left. Ties: lowest user, server.

A small third system beside the wings and not a wing: there are no contexts, no policies to choose from and one loop. It uses
what the wings share (compiled programs, streams, runs on disk) and nothing of theirs.

``systems``   users and servers, and what is exact about them
``loop``      the matchings and the slots, compiled
``simulate``  many runs, kept on disk
"""

from __future__ import annotations

from .simulate import Result, simulate
from .systems import System, certain_exploration, exploring_regret, stationary

__all__ = ["Result", "System", "certain_exploration", "exploring_regret", "simulate", "stationary"]
