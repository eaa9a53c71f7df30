"""What the reproductions of the scheduling papers' figures share: policies' names and looks."""

from __future__ import annotations

from typing import Any

#: Colour and line of every policy: WISE and its closest rivals stand out, policies blind to contexts are dashed.
STYLES: dict[str, dict[str, Any]] = {
    "wise": {"color": "#d62718", "linewidth": 1.8, "zorder": 5},
    "cqb_opt": {"color": "#0057b8", "linewidth": 1.4, "zorder": 4},
    "cqb_epsilon": {"color": "#29a3e0", "linewidth": 1.1, "zorder": 3.5},
    "cqb_eta_2": {"color": "#008a5c", "linewidth": 1.1, "zorder": 3.4},
    "acqb": {"color": "#a23fb5", "linewidth": 1.1, "zorder": 3.3},
    "q_ucb": {"color": "#e08a00", "linewidth": 1.1, "linestyle": (0, (5, 1.5)), "zorder": 3.2},
    "q_ths": {"color": "#7a4a1e", "linewidth": 1.1, "linestyle": (0, (2.5, 1.2)), "zorder": 3.1},
    "random": {"color": "#777777", "linewidth": 1.1, "linestyle": (0, (1, 1)), "zorder": 3},
}
LABELS = {
    "wise": "WISE",
    "cqb_opt": "CQB-Opt",
    "cqb_epsilon": "CQB-ε",
    "cqb_eta_2": "CQB-η-2",
    "acqb": "ACQB",
    "q_ucb": "Q-UCB",
    "q_ths": "Q-ThS",
    "random": "Random",
}
