"""Cost models: time and memory of a stage, under each published system's formulas and our own."""

from ilp_planner.costs.aceso import AcesoCosts
from ilp_planner.costs.native import NativeCosts

COST_MODELS: dict[str, type[AcesoCosts] | type[NativeCosts]] = {
    "aceso": AcesoCosts,
    "native": NativeCosts,
}
