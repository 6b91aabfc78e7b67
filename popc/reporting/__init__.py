"""Reports about compiled programs: as data, as a page, and two of them compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from popc_runtime.ground.lazy import lazy_names

if TYPE_CHECKING:
    from popc.reporting.compare import compare_costs, compare_profiles
    from popc.reporting.profile import Profile, profile_of, read_profile
    from popc.reporting.render import render_page
    from popc.reporting.sections import SECTIONS, report_data

__all__ = [
    "SECTIONS",
    "Profile",
    "compare_costs",
    "compare_profiles",
    "profile_of",
    "read_profile",
    "render_page",
    "report_data",
]

# Compiling asks whether costs are wanted, and imports the cost model only if they are.
__getattr__ = lazy_names(
    __name__,
    {
        "Profile": "popc.reporting.profile",
        "SECTIONS": "popc.reporting.sections",
        "compare_costs": "popc.reporting.compare",
        "compare_profiles": "popc.reporting.compare",
        "profile_of": "popc.reporting.profile",
        "read_profile": "popc.reporting.profile",
        "render_page": "popc.reporting.render",
        "report_data": "popc.reporting.sections",
    },
)
