"""Logs of pools, and their replay."""

import pytest
import warpheap


@pytest.fixture
def log(cpu, tmp_path):
    path = tmp_path / "log.csv"
    with warpheap.CachingPool(cpu, log=path) as pool:
        blocks = [pool.allocate(1000 * (i + 1), stream=i % 2) for i in range(20)]
        for block in blocks[::2]:
            block.free()
        for block in blocks[1::2]:
            block.free(stream=0)
    return path


def test_a_log_has_a_row_for_each_call(log):
    rows = warpheap.read_log(log)
    assert len(rows) == 40 and [row["action"] for row in rows].count("free") == 20
    assert rows[0]["size"] == 1000 and rows[0]["align"] == 256 and rows[0]["tag"] is None
    assert len({row["stream"] for row in rows}) == 2


@pytest.mark.parametrize("pool", ["caching", "blocks", "bump", "driver", "driver-pool"])
@pytest.mark.parametrize("threads", [False, True])
def test_a_log_is_replayed_against_every_pool(cpu, log, pool, threads):
    result = warpheap.replay(log, pool, device=cpu, threads=threads)
    assert result["is_clean"] and result["pool"]["pool"] == pool
    assert result["trace"]["allocations"] == 20 and result["pool"]["operations"] == 40
    assert result["pool"]["peak_live_bytes"] == 210_000


def test_a_limit_makes_allocations_fail(cpu, log):
    result = warpheap.replay(log, "driver", device=cpu, max_bytes=100_000)
    assert result["pool"]["failed_allocations"]["count"] > 0 and result["is_clean"]


def test_the_default_device_replays(log):
    assert warpheap.replay(log)["is_clean"]


def test_invalid_logs_and_pools_are_named(cpu, tmp_path, log):
    path = tmp_path / "bad.csv"
    for text, why in [
        ("", "bad.csv"),
        ("a,b\n1,2\n", "column names"),
        ("thread,time,action,pointer,size,stream\n", "nothing is allocated"),
        ("thread,time,action,pointer,size,stream\n1,1,allocate,0x1,x,0\n", "line 2, column 5"),
    ]:
        path.write_text(text)
        with pytest.raises(warpheap.InvalidFile, match=why):
            warpheap.replay(path, device=cpu)
    with pytest.raises(warpheap.InvalidFile, match="No such file"):
        warpheap.read_log(tmp_path / "none.csv")
    with pytest.raises(warpheap.InvalidRequest, match="there is no pool `cashing`.*caching"):
        warpheap.replay(log, "cashing", device=cpu)
    with pytest.raises(warpheap.InvalidFile, match="none"):
        warpheap.CachingPool(cpu, log=tmp_path / "none" / "log.csv")
    with pytest.raises(TypeError):
        warpheap.read_log(5)
