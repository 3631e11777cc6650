"""Pools of device memory on the CPU."""

import gc
import subprocess
import sys
import threading
import weakref

import pytest
import warpheap

MIB = 1 << 20


def test_allocations_are_freed_by_hand_by_with_and_on_drop(pool):
    first = pool.allocate(1000)
    with pool.allocate(MIB, stream=1) as second:
        assert (
            second.ptr != first.ptr and len(second) == second.nbytes == MIB and second.stream == 1
        )
        assert pool.stats()["live_blocks"] == 2
    assert pool.stats()["live_blocks"] == 1
    first.free()
    dropped = pool.allocate(64)
    del dropped
    gc.collect()
    assert pool.stats()["live_blocks"] == 0


def test_a_freed_allocation_raises(pool):
    block = pool.allocate(100)
    block.free()
    with pytest.raises(warpheap.InvalidFree, match="already freed"):
        block.free()
    with pytest.raises(warpheap.Closed):
        _ = block.ptr
    assert "freed" in repr(block) and pool.stats()["live_blocks"] == 0


def test_an_allocation_outlives_the_closed_pool(cpu):
    pool = warpheap.CachingPool(cpu)
    block = pool.allocate(100)
    pool.close()
    assert block.ptr > 0
    block.free()
    for call in (pool.stats, pool.report, pool.trim, pool.snapshot, lambda: pool.allocate(1)):
        with pytest.raises(warpheap.Closed, match="the pool was closed"):
            call()


def test_memory_is_reused_on_its_stream(pool):
    address = pool.allocate_raw(4096, 3)
    pool.deallocate_raw(address, 4096, 3)
    assert pool.allocate_raw(4096, 3) == address
    pool.deallocate_raw(address, 4096, 3)
    pool.forget_stream(3)
    assert pool.stats()["live_blocks"] == 0


def test_raw_frees_are_checked(pool):
    address = pool.allocate_raw(4096)
    for pointer, nbytes, why in [
        (0, 4096, "0x0"),
        (0xDEAD0000, 4096, "0xdead0000"),
        (address + 512, 4096, "inside"),
        (address, 8192, "allocated as"),
    ]:
        with pytest.raises(warpheap.InvalidFree, match=why):
            pool.deallocate_raw(pointer, nbytes)
    pool.deallocate_raw(address, 4096)
    with pytest.raises(warpheap.InvalidFree):
        pool.deallocate_raw(address, 4096)
    with warpheap.CachingPool(pool.device) as other:
        foreign = other.allocate_raw(4096)
        with pytest.raises(warpheap.InvalidFree, match="test"):
            pool.deallocate_raw(foreign, 4096)
        other.deallocate_raw(foreign, 4096)


@pytest.mark.parametrize(
    ("nbytes", "error", "text"),
    [
        (0, warpheap.InvalidRequest, "at least 1 B"),
        (1 << 45, warpheap.OutOfMemory, "cannot allocate"),
        (1 << 50, warpheap.InvalidRequest, "the maximum is"),
        ((1 << 63) - 1, warpheap.InvalidRequest, "exceed"),
        (-5, OverflowError, "negative"),
        (1 << 64, OverflowError, "too big"),
        ("1", TypeError, "nbytes"),
        (2.0, TypeError, "nbytes"),
    ],
)
def test_absurd_requests_are_rejected(pool, nbytes, error, text):
    with pytest.raises(error, match=text):
        pool.allocate(nbytes)
    with pytest.raises(warpheap.InvalidRequest, match="power of two"):
        pool.allocate(64, align=48)


def test_out_of_memory_is_a_memory_error(cpu):
    with warpheap.CachingPool(cpu, max_bytes=4 * MIB) as pool:
        block = pool.allocate(3 * MIB)
        with pytest.raises(MemoryError, match="are in use"):
            pool.allocate(3 * MIB)
        block.free()


class _Attribute:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class _Protocol:
    def __cuda_stream__(self):
        return (0, 7)


@pytest.mark.parametrize(
    ("stream", "raw"),
    [
        (None, 0),
        (5, 5),
        (_Protocol(), 7),
        (_Attribute(ptr=8), 8),
        (_Attribute(cuda_stream=9), 9),
        (_Attribute(value=lambda: 10), 10),
        (_Attribute(handle=_Attribute(value=None)), 0),
        (_Attribute(handle=_Attribute(value=11)), 11),
    ],
)
def test_streams_of_other_libraries_are_understood(pool, stream, raw):
    assert pool.allocate(64, stream).stream == raw


def test_stream_objects_live_as_long_as_the_pool_uses_them(cpu):
    class Stream(_Protocol):
        pass

    stream = Stream()
    alive = weakref.ref(stream)
    pool = warpheap.CachingPool(cpu)
    block = pool.allocate(64, stream)
    del stream
    pool.close()
    del pool
    gc.collect()
    assert alive() is not None
    del block
    gc.collect()
    assert alive() is None
    with warpheap.CachingPool(cpu) as pool:
        pool.deallocate_raw(pool.allocate_raw(64, stream := Stream()), 64, stream)
        alive = weakref.ref(stream)
        pool.forget_stream(stream)
        del stream
        assert alive() is None


# The pool's drop writes the rest of its log to a full pipe, and so waits for the reader, a thread
# that needs the GIL.
DROP = """
import fcntl, os, sys, threading, warpheap

path = sys.argv[1]
os.mkfifo(path)
reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
pool = warpheap.CachingPool(warpheap.Device.cpu(), log=path)
room = fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
filler = os.open(path, os.O_WRONLY)
os.write(filler, b" " * room)
os.close(filler)
block = pool.allocate(64)
dropping, text = threading.Event(), []

def read():
    dropping.wait()
    while part := os.read(reader, 4096):
        text.append(part)

os.set_blocking(reader, True)
thread = threading.Thread(target=read)
thread.start()
DROPS
thread.join()
assert b"64" in b"".join(text).strip(), text
"""


@pytest.mark.parametrize(
    "drops",
    ["block.free(); dropping.set(); del pool, block", "del pool; dropping.set(); del block"],
    ids=["pool", "allocation"],
)
def test_a_drop_that_waits_lets_other_threads_run(tmp_path, drops):
    program = f"import sys; sys.setswitchinterval(60)\n{DROP.replace('DROPS', drops)}"
    subprocess.run([sys.executable, "-c", program, tmp_path / "pipe"], check=True, timeout=60)


def test_what_is_no_stream_is_rejected(pool):
    for wrong in ("0", 1.5, object(), [1]):
        with pytest.raises(TypeError, match="a stream was expected"):
            pool.allocate(64, wrong)
    with pytest.raises(OverflowError):
        pool.allocate(64, -1)


def test_an_array_interface_needs_a_gpu(pool):
    block = pool.allocate(64)
    assert not hasattr(block, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="on the CPU"):
        _ = block.__cuda_array_interface__


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"max_bytes": 1}, "max_bytes"),
        ({"min_block": 100}, "min_block"),
        ({"segment_bytes": 5}, "segment_bytes"),
        ({"classes_per_doubling": 3}, "classes_per_doubling"),
        ({"slab_limit": 1}, "slab_limit"),
    ],
)
def test_invalid_settings_are_named(cpu, settings, setting):
    with pytest.raises(warpheap.InvalidConfig, match=f"with {setting} = "):
        warpheap.CachingPool(cpu, **settings)


def test_a_block_pool_has_blocks_of_one_size(cpu):
    with warpheap.BlockPool(4096, 3, cpu, name="rows") as pool:
        blocks = [pool.allocate(4096 - i) for i in range(3)]
        with pytest.raises(warpheap.OutOfMemory, match="rows"):
            pool.allocate(1)
        assert pool.stats()["free_blocks"] == 0
        blocks[1].free()
        with pytest.raises(warpheap.InvalidRequest, match="rows"):
            pool.allocate(4097)
        with pytest.raises(warpheap.InvalidFree):
            pool.deallocate_raw(blocks[0].ptr + 4096, 4096)
        assert pool.snapshot()["stats"]["live_blocks"] == 2
    with pytest.raises(warpheap.InvalidConfig):
        warpheap.BlockPool(4096, 0, cpu)


def test_reports_and_snapshots_agree_with_statistics(pool):
    blocks = [pool.allocate(100_000) for _ in range(5)]
    stats, snapshot = pool.stats(), pool.snapshot()
    assert snapshot["stats"] == stats
    assert snapshot["report"]["used_bytes"] == stats["usage"]["used_bytes"] >= 500_000
    report = pool.report()
    assert "test" in str(report) and "test" in report._repr_html_() and "Report" in repr(report)
    del blocks
    assert pool.trim() > 0 and pool.stats()["usage"]["reserved_bytes"] == 0


def test_names_are_escaped_in_html(cpu):
    with warpheap.CachingPool(cpu, name="<script>") as pool:
        assert "<script>" not in pool.report()._repr_html_()


def test_threads_share_a_pool(pool):
    failures = []

    def work(seed):
        try:
            for i in range(300):
                pool.allocate(1 + (seed * 7919 + i * 104_729) % 200_000, stream=seed % 3)
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and pool.stats()["live_blocks"] == 0


def test_a_pool_may_be_closed_while_threads_use_it(cpu):
    pool = warpheap.CachingPool(cpu)
    started = threading.Barrier(3)
    seen = []

    def work():
        started.wait()
        try:
            while True:
                pool.allocate(5000)
        except warpheap.Closed:
            seen.append("closed")

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    started.wait()
    pool.close()
    for thread in threads:
        thread.join(60)
    assert seen == ["closed"] * 2
