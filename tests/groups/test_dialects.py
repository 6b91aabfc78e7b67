"""What other systems say about processes."""

from __future__ import annotations

from typing import Any, Final

import pytest

from popc.popart import SessionOptions
from popc.popart.distributed import group_of
from popc.popart.errors import popart_exception
from popc.request import make_options
from popc_runtime.errors import OptionError
from popc_runtime.groups import Group, run_loopback

_SWITCH: Final = "enableDistributedReplicatedGraphs"
_TOTAL: Final = "globalReplicationFactor"
_OFFSET: Final = "globalReplicaOffset"
_DISTRIBUTION: Final = "experimental.multi_replica_distribution"


@pytest.mark.parametrize(
    ("settings", "replicas"),
    [
        ({_SWITCH: True, _TOTAL: 4, _OFFSET: 2, "replicatedGraphCount": 2}, 4),
        ({_SWITCH: True, _TOTAL: 3, "enableReplicatedGraphs": True}, 3),
        ({_SWITCH: False, _TOTAL: 1, "replicated_graph_count": 2, "hostAllReduce": True}, 2),
        ({"dialect": "tensorflow", f"{_DISTRIBUTION}.process_count": 3}, 3),
        (
            {
                "dialect": "tensorflow",
                f"{_DISTRIBUTION}.process_count": 2,
                f"{_DISTRIBUTION}.process_index": 1,
                "replicated_graph_count": 4,
            },
            4,
        ),
    ],
)
def test_replicas_are_those_of_all_processes(settings: dict[str, Any], replicas: int) -> None:
    assert make_options(settings).replicated_graph_count == replicas


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({_TOTAL: 4}, f"{_TOTAL} is 4 (in options), but {_SWITCH} is not true"),
        ({_SWITCH: True, _TOTAL: 3, "replicatedGraphCount": 2}, "2 replicas each do not add up"),
        ({_SWITCH: True, _TOTAL: 4, _OFFSET: 4}, "a multiple of 1 below 4"),
        ({_SWITCH: True, _TOTAL: 0}, f"{_TOTAL} is 0, but must be at least 1"),
        ({"hostWeightUpdate": True}, "weights are updated on the device"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError) as caught:
        make_options(settings)
    assert words in "\n".join(caught.value.details)


def test_sessions_check_their_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    options = SessionOptions()
    assert group_of(options) is None
    options.enableDistributedReplicatedGraphs = True
    options.enableReplicatedGraphs = True
    options.replicatedGraphCount = 2
    options.globalReplicationFactor = 4
    assert options.getGlobalReplicationFactor() == 4

    def check(group: Group) -> None:
        monkeypatch.setattr("popc.popart.distributed._joined", lambda: group)
        options.globalReplicaOffset = 2 * group.rank
        assert group_of(options) is group
        options.globalReplicaOffset = 1
        with pytest.raises(popart_exception, match="of rank 0 begin at 0"):
            group_of(options)
        options.globalReplicationFactor = 6
        with pytest.raises(popart_exception, match="has started 1 processes"):
            group_of(options)

    with pytest.raises(popart_exception, match="has started 1 processes, and replicatedGraphCount"):
        run_loopback(1, check)
    options.globalReplicationFactor = 2
    run_loopback(1, check)
