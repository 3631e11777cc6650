"""A fork copies one thread and no locks that others hold: in the child, each call is an error."""

import subprocess
import sys

PROGRAM = r"""
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import traceback

import warpheap
from warpheap import _warpheap

MIB = 1 << 20
#: Seconds after which a child that waits is ended.
LIMIT = 20


def in_child(body):
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT)
        try:
            body()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, body


def works():
    device = warpheap.Device.cpu()
    with warpheap.Heap(4 * MIB, device) as heap, warpheap.CachingPool(device) as pool:
        heap.deallocate(heap.allocate(64))
        pool.allocate(64).free()


in_child(works)

device = warpheap.Device.cpu()
heap = warpheap.Heap(4 * MIB, device)
bump = warpheap.Bump(MIB, device)
blocks = warpheap.FreeList(100, 64, device)
pool = warpheap.CachingPool(device)
equal = warpheap.BlockPool(4096, 100, device)
block, allocation = heap.allocate(64), pool.allocate(64)
pools = (heap, bump, blocks, pool, equal)


def leaves_block(pool):
    with pool:
        pass


CALLS = [
    lambda: heap.allocate(64),
    lambda: heap.deallocate(block),
    lambda: heap.leaks(),
    lambda: heap.snapshot(),
    lambda: heap.grow_to(MIB),
    lambda: heap.handle,
    lambda: heap.value,
    lambda: heap.capacity,
    lambda: heap.faults(),
    lambda: blocks.faults(),
    *[lambda pool=pool: pool.stats() for pool in pools],
    *[lambda pool=pool: pool.close() for pool in pools],
    *[lambda pool=pool: leaves_block(pool) for pool in pools],
    *[lambda pool=pool: pool.check() for pool in pools[:3]],
    *[lambda pool=pool: pool.reset() for pool in pools[:3]],
    *[lambda pool=pool: pool.report() for pool in (heap, pool, equal)],
    *[lambda pool=pool: pool.allocate(64) for pool in pools[3:]],
    *[lambda pool=pool: pool.allocate_raw(64) for pool in pools[3:]],
    *[lambda pool=pool: pool.deallocate_raw(block, 64) for pool in pools[3:]],
    *[lambda pool=pool: pool.snapshot() for pool in pools[3:]],
    *[lambda pool=pool: pool.flush_log() for pool in pools[3:]],
    *[lambda pool=pool: pool.forget_stream(0) for pool in pools[3:]],
    lambda: pool.trim(),
    lambda: allocation.free(),
    lambda: allocation.record_stream(5),
    lambda: leaves_block(allocation),
    lambda: device.info(),
    lambda: device.synchronize(),
    lambda: device.compute_capability,
    lambda: warpheap.Device.cpu(),
    lambda: warpheap.Device.cuda(),
    lambda: warpheap.Device.cuda_count(),
    lambda: warpheap.default_device(),
    lambda: warpheap.Heap(MIB, device),
    lambda: warpheap.Heap(MIB),
    lambda: warpheap.Bump(MIB, device),
    lambda: warpheap.FreeList(10, 64, device),
    lambda: warpheap.CachingPool(device),
    lambda: warpheap.BlockPool(64, 10, device),
    lambda: warpheap.replay("/dev/null", device=device),
    lambda: warpheap.device_library(),
    lambda: _warpheap.torch_pool(0),
    lambda: _warpheap.torch_check_pools([]),
    lambda: _warpheap.torch_use_pools([]),
]


def every_call_fails():
    for number, call in enumerate(CALLS):
        try:
            call()
        except RuntimeError as error:
            assert isinstance(error, warpheap.Forked), (number, error)
            assert "a forked child cannot use warpheap" in str(error)
        else:
            raise AssertionError(f"call {number} works in a forked child")
    library = ctypes.CDLL(_warpheap.__file__)
    free = library.warpheap_torch_free
    free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    free(0x1000, 64, 0, None)


def drops():
    global heap, bump, blocks, pool, equal, pools, allocation, CALLS
    del heap, bump, blocks, pool, equal, pools, allocation, CALLS


def ends_as_programs_do():
    signal.alarm(LIMIT)
    sys.exit(0)


in_child(every_call_fails)
in_child(drops)
in_child(lambda: in_child(every_call_fails))

context = multiprocessing.get_context("fork")
process = context.Process(target=every_call_fails)
process.start()
process.join(LIMIT)
assert process.exitcode == 0, process.exitcode

ended = threading.Event()


def use():
    while not ended.is_set():
        heap.deallocate(heap.allocate(64))
        bump.check()
        blocks.reset()
        pool.allocate(5000).free()
        equal.allocate(64).free()
        device.synchronize()


threads = [threading.Thread(target=use) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(10):
    in_child(every_call_fails)
    in_child(drops)
ended.set()
for thread in threads:
    thread.join()

child = os.fork()
if child == 0:
    ends_as_programs_do()
assert os.waitpid(child, 0)[1] == 0
heap.deallocate(block)
allocation.free()
print("done")
"""


def test_calls_in_a_forked_child_are_errors():
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr
    assert "free by PyTorch failed" not in done.stderr
