"""Ways to order the nodes of a problem, each fast and without any promise."""

from popc.schedule.algorithms.clustering import clustering_order
from popc.schedule.algorithms.kahn import kahn_order, list_order
from popc.schedule.algorithms.look_ahead import look_ahead_order
from popc.schedule.algorithms.post_order import post_order
from popc.schedule.algorithms.shortest_path import shortest_path_order

__all__ = [
    "clustering_order",
    "kahn_order",
    "list_order",
    "look_ahead_order",
    "post_order",
    "shortest_path_order",
]
