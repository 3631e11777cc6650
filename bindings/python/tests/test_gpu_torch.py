"""PyTorch on a GPU, with memory of a pool. PyTorch must not have used the GPU before."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from gpu_support import need, raises, run, skip

need("torch")

import torch  # noqa: E402
import warpheap  # noqa: E402
import warpheap.torch  # noqa: E402

if torch.cuda.is_initialized():
    skip("PyTorch has already used the GPU")


def fails(*_):
    raise RuntimeError("cannot change the allocator")


def test_tensors_come_from_a_pool():
    use_pool, memory = warpheap.torch.use_pool, torch.cuda.memory
    pool = warpheap.CachingPool(warpheap.Device.cuda(), max_bytes=8 << 30, name="tensors")
    raises(TypeError, "not int", lambda: use_pool(pool, 5))
    raises(warpheap.InvalidRequest, "two pools on GPU 0", lambda: use_pool(pool, pool))
    on_cpu = warpheap.CachingPool(warpheap.Device.cpu())
    raises(warpheap.NotSupported, "on the CPU", lambda: use_pool(pool, on_cpu))
    change, memory.change_current_allocator = memory.change_current_allocator, fails
    raises(RuntimeError, "cannot change", lambda: use_pool(pool))
    memory.change_current_allocator = change
    use_pool(pool)
    tensor = torch.arange(1000, device="cuda")
    assert pool.stats()["live_blocks"] >= 1 and int(tensor.sum()) == 499_500
    assert warpheap.torch.pool().stats()["live_blocks"] == pool.stats()["live_blocks"]
    raises(warpheap.InvalidRequest, "already has a pool", lambda: use_pool(pool))


def test_random_tensors_keep_their_values():
    rng, live = random.Random(2), []
    before = warpheap.torch.pool().stats()["live_blocks"]
    for i in range(10_000):
        if len(live) > 40 or (live and rng.random() < 0.5):
            tensor, value = live.pop(rng.randrange(len(live)))
            if i % 50 == 0:
                assert bool((tensor == value).all()), f"allocation {i} was overwritten"
            del tensor
        size = int(2 ** rng.uniform(0, 22))
        live.append((torch.full((size,), i, device="cuda", dtype=torch.int32), i))
    assert all(bool((tensor == value).all()) for tensor, value in live)
    live.clear()
    torch.cuda.synchronize()
    assert warpheap.torch.pool().stats()["live_blocks"] <= before + 2


def test_streams_have_caches_of_their_own():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.ones(1 << 20, device="cuda")
        y = x @ x
    stream.synchronize()
    assert float(y) == float(1 << 20)


def trials(*options):
    """Results of ``record_stream_trials.py``: a process can choose its allocator only once."""
    program = Path(__file__).with_name("record_stream_trials.py")
    command = [sys.executable, program, *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    results = json.loads(done.stdout)
    print(*options, results)
    return results


def test_a_recorded_stream_keeps_the_memory():
    for allocator in ("own", "warpheap"):
        results = trials(allocator)
        assert results["wrong"] == 0, (allocator, results)
        assert results["waited"] <= results["trials"] // 10, (allocator, results)
    forgotten = trials("warpheap", "--forget")
    assert forgotten["wrong"] > 0, f"the trials cannot fail: {forgotten}"


def test_calls_in_a_forked_child_are_errors():
    tensor = torch.ones(10, device="cuda")
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            raises(warpheap.Forked, "forked child", warpheap.torch.pool)
            # PyTorch frees it in the child, which has none of the memory.
            del tensor
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert float(tensor.sum()) == 10


def test_out_of_memory_is_an_exception():
    raises(RuntimeError, "tensors", lambda: torch.empty(1 << 40, device="cuda", dtype=torch.uint8))
    assert int(torch.ones(10, device="cuda").sum()) == 10


def test_a_small_network_learns():
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
    ).cuda()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05)
    x = torch.randn(512, 16, device="cuda")
    y = x.sum(dim=1, keepdim=True)
    losses = []
    for _ in range(50):
        loss = ((net(x) - y) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss))
    assert losses[-1] < losses[0] / 4, losses


if __name__ == "__main__":
    run(globals())
