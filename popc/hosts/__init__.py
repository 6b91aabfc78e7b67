"""Stand-ins for the classes with which other systems are configured: `popc.compile` takes them.

`popc.hosts.tensorflow.IPUConfig`, `popc.hosts.optimum.IPUConfig`, `popc.hosts.paddle.IpuStrategy`.
"""

__all__: list[str] = []
