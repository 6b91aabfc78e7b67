"""The samples for Ray, on a real one of this machine."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs the group ray: make test-ray")

from tests.serving.running import expected, save

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # Ray's own
    pytest.mark.xdist_group("ray"),
]

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("ray") / "net.popx")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A Ray of two processors, whose workers find what this process finds."""
    import ray

    paths = os.pathsep.join([str(_ROOT), *filter(None, sys.path)])
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    yield ray
    ray.shutdown()


def _rows(count: int, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal((count, 16)).astype(np.float32)


def _assert_right(found: list[dict[str, Any]], count: int) -> None:
    assert len(found) == count
    for row in found:
        given = np.asarray(row["x"], np.float32)
        np.testing.assert_allclose(row["y"], expected(given), rtol=1e-4, atol=1e-5)


def test_a_data_set_gets_its_results(cluster: Any, archive: Path) -> None:
    from samples.ray_batches import predicted

    rows = cluster.data.from_numpy(_rows(150, 0)).rename_columns({"data": "x"})
    _assert_right(predicted(rows, str(archive), actors=1, batch_size=32).take_all(), 150)


def test_files_with_lists_get_their_results(cluster: Any, archive: Path, tmp_path: Path) -> None:
    """As in the sample's first lines; numbers in lists are of the widest type."""
    from samples.ray_batches import main

    items = [{"x": row.tolist()} for row in _rows(20, 3)]
    source, target = tmp_path / "rows", tmp_path / "results"
    cluster.data.from_items(items).write_parquet(str(source))
    assert main([str(archive), str(source), str(target)]) == 0
    _assert_right(cluster.data.read_parquet(str(target)).take_all(), 20)


@pytest.mark.parametrize(
    ("name", "said"),
    [("z", r"the data set has no column \['x'\], but \['z'\]"), ("x", "no program takes")],
)
def test_wrong_columns_are_told(cluster: Any, archive: Path, name: str, said: str) -> None:
    from samples.ray_batches import predicted

    rows = cluster.data.from_items([{name: [1.0, 2.0]}] * 4)
    with pytest.raises(Exception, match=said):
        predicted(rows, str(archive), actors=1).take_all()


def _ask(port: int, body: str) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("POST", "/", body)
    reply = connection.getresponse()
    found = reply.status, json.loads(reply.read())
    connection.close()
    return found


_WRONG = {
    3: ("{", "not JSON"),
    7: ('{"x": [1, 2]}', "no program takes"),
    12: ('{"x": ["a"]}', "could not convert"),
    20: ('{"z": 1}', "expected ['x'], got ['z']"),
    30: ("[1]", "not a JSON object"),
}


def _assert_served(port: int) -> None:
    """Each request gets its own result, however many share a run, and wrong ones their errors."""
    x = _rows(60, 1)
    bodies = [json.dumps({"x": row.tolist()}) for row in x]
    for number, (body, _) in _WRONG.items():
        bodies[number] = body
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda body: _ask(port, body), bodies))
    for number, (status, document) in enumerate(replies):
        if number in _WRONG:
            assert (status, _WRONG[number][1] in document["error"]) == (400, True), document
            continue
        assert status == 200, document
        np.testing.assert_allclose(document["y"], expected(x[number]), rtol=1e-4, atol=1e-5)


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
        return port


def test_a_deployment_answers_each_request_with_its_own_result(cluster: Any, archive: Path) -> None:
    from ray import serve

    from samples.ray_serve import app

    del cluster
    port = _free_port()
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(app({"archive": str(archive)}))
    _assert_served(port)
    serve.shutdown()


@pytest.mark.parametrize("arguments", [{}, {"archive": "a", "thread": "2"}])
def test_wrong_arguments_of_a_deployment_are_told(arguments: dict[str, str]) -> None:
    from samples.ray_serve import app

    with pytest.raises(ValueError, match=r"give archive=PATH"):
        app(arguments)
