"""Models of other systems, each with what that system computes, for tests to compare with."""
