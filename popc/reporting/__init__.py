"""Reports about compiled programs: as data, as a page, and two of them compared."""

from __future__ import annotations

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
