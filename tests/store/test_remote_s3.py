"""A real S3 server, behind a proxy that cuts connections: runs are recorded to a bucket, and compared as they lie there."""

import json
import subprocess
from pathlib import Path

import pytest

import twintrace as tt
from scripts.layers import LayerError, layer

LAYER = (
    "s3fs==2026.9.0", "fsspec==2026.9.0", "aiobotocore==3.10.0", "botocore==1.43.117", "boto3==1.43.117", "s3transfer==0.19.3",
    "jmespath==1.1.0", "wrapt==2.5.2", "aioitertools==0.13.0", "moto==5.2.5", "flask==3.1.3", "flask-cors==6.0.5",
    "werkzeug==3.1.9", "itsdangerous==2.2.0", "blinker==1.9.0", "responses==0.26.3", "xmltodict==1.0.4",
    "py-partiql-parser==0.6.3", "docker==7.2.0", "antlr4-python3-runtime==4.13.2", "jsonpath-ng==1.16.0", "cryptography==50.0.2",
    "cffi", "pycparser",
)  # fmt: skip


@pytest.fixture
def session(checkout_env):
    """Runs s3_session.py where s3fs and moto are: the facts that it prints."""

    def run(*words):
        try:
            python = layer("s3", LAYER)
        except LayerError as error:
            pytest.skip(f"an S3 server cannot be had: {error}")
        command = [python, Path(__file__).parent / "s3_session.py", *words]
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=300, env=checkout_env, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.mark.slow
def test_runs_in_a_bucket_are_compared_although_connections_are_cut(tmp_path, session):
    from benchmarks.simulated import Fault, record_base, write_run

    base = record_base(tmp_path / "base", records=100, steps=2)
    write_run(base, tmp_path / "a", ranks=2)
    write_run(base, tmp_path / "b", ranks=2, fault=Fault(rank=1, step=1))
    facts = session("compare", tmp_path / "a", tmp_path / "b")

    here = tt.compare(tmp_path / "a", tmp_path / "b", recompute=False)
    assert facts["cuts"] > 0
    assert facts["same"] == 0
    assert facts["code"] == here.code == 1
    assert facts["places"] == [
        [item.step, item.rank, str(item.match.left[0].site) if item.match.left else "", str(item.verdict.outcome)]
        for item in here.judged
    ]


@pytest.mark.slow
def test_a_run_is_recorded_to_a_bucket_although_connections_are_cut(tmp_path, session):
    facts = session("record", tmp_path)

    assert facts["first"] == []  # the connection came back before the end
    assert facts["files"] == 9  # a manifest, and journal and payload of four steps
    assert facts["cuts"] > 0
    assert "could not be uploaded to s3://bucket/runs/b" in facts["told"]
    assert facts["before"] < facts["after"] == 9
    assert not facts["left"]
    assert facts["codes"] == [0, 0]
