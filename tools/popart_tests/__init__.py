"""Runs the Python tests that PopART's authors wrote against popc's module `popart`."""
