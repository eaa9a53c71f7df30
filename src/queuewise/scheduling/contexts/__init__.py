"""Context laws: where the jobs of a :class:`~queuewise.scheduling.systems.System` come from.

Each law is a function that returns a system, in a file of its own:

``wise_figure_law``
    the two-speed law of WISE's Figure 1
``uniform_law``
    uniform features and parameter, as in CQB-eta-2's experiments
``table_law``
    any finite table of contexts
``function_law``
    a function of the user that draws contexts
``from_outcomes``
    recorded results of jobs on servers
``hard`` (``scheduling.hard_instances``)
    the families behind the papers' lower bounds
"""

from .function import FunctionLaw, function_law
from .outcomes import OutcomesSystem, from_outcomes
from .table import FiniteLaw, table_law
from .uniform import UniformSystem, uniform_law
from .wise_figure import WiseFigureSystem, wise_figure_law

__all__ = [
    "FiniteLaw",
    "FunctionLaw",
    "OutcomesSystem",
    "UniformSystem",
    "WiseFigureSystem",
    "from_outcomes",
    "function_law",
    "table_law",
    "uniform_law",
    "wise_figure_law",
]
