"""Heaps, arenas and free lists on the CPU."""

import json

import pytest
import warpheap

MIB = 1 << 20


@pytest.fixture
def heap(cpu):
    with warpheap.Heap(4 * MIB, cpu) as heap:
        yield heap


def test_a_heap_allocates_frees_and_reports(heap):
    blocks = [heap.allocate(size) for size in (1, 16, 100, 5000, 300_000)]
    assert len(set(blocks)) == 5 and all(block % 16 == 0 for block in blocks)
    stats = heap.stats()
    assert stats["live_blocks"] == 5 and stats["usage"]["used_bytes"] >= 305_117
    leaks = heap.leaks(2)
    assert (
        leaks["count"] == 5 and [leak["address"] for leak in leaks["first"]] == sorted(blocks)[:2]
    )
    assert heap.allocate(64, align=4096) % 4096 == 0
    for block in blocks:
        heap.deallocate(block)
    assert heap.stats()["live_blocks"] == 1 and heap.check() == []
    heap.reset()
    assert heap.leaks()["count"] == 0 and heap.faults() == {"count": 0, "first": []}
    assert heap.capacity == 4 * MIB and heap.handle % 16 == 0 and heap.handle != 0


def test_a_growable_heap_grows(cpu):
    with warpheap.Heap(64 * MIB, cpu, initial=2 * MIB, largest_class=1024, shards=2) as heap:
        assert heap.stats()["usage"]["reserved_bytes"] == 2 * MIB
        with pytest.raises(warpheap.OutOfMemory, match="grow_to"):
            heap.allocate(8 * MIB)
        assert heap.grow_to(32 * MIB) >= 32 * MIB
        heap.allocate(8 * MIB)


def test_frees_of_what_is_not_live_are_named(heap):
    block = heap.allocate(64)
    heap.deallocate(block)
    for pointer, why in [
        (block, "already free"),
        (0x1234567890, "not in this heap"),
        (0, "null"),
        ((1 << 64) - 1, "not in this heap"),
    ]:
        with pytest.raises(warpheap.InvalidFree, match=why):
            heap.deallocate(pointer)
    block = heap.allocate(64)
    with pytest.raises(warpheap.InvalidFree, match="inside a block"):
        heap.deallocate(block + 16)
    assert heap.check() == [] and heap.stats()["live_blocks"] == 1


@pytest.mark.parametrize(
    ("nbytes", "align", "error", "text"),
    [
        (0, 16, warpheap.InvalidRequest, "the size is 0"),
        (16, 3, warpheap.InvalidRequest, "power of two"),
        (16, 0, warpheap.InvalidRequest, "power of two"),
        (16, 1 << 30, warpheap.InvalidRequest, "largest supported alignment"),
        (1 << 63, 16, warpheap.InvalidRequest, "exceed the address space"),
        (1 << 40, 16, warpheap.OutOfMemory, "out of memory"),
        (-1, 16, OverflowError, "negative"),
        (1 << 70, 16, OverflowError, "too big"),
        ("16", 16, TypeError, "nbytes"),
        (1.5, 16, TypeError, "nbytes"),
        (None, 16, TypeError, "nbytes"),
    ],
)
def test_absurd_requests_are_rejected(heap, nbytes, align, error, text):
    with pytest.raises(error, match=text):
        heap.allocate(nbytes, align)
    assert heap.stats()["live_blocks"] == 0


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"bytes": 0}, "bytes"),
        ({"bytes": 1 << 63}, "bytes"),
        ({"bytes": MIB, "initial": 2 * MIB}, "initial"),
        ({"bytes": MIB, "largest_class": 1}, "largest_class"),
        ({"bytes": MIB, "shards": 0}, "shards"),
    ],
)
def test_invalid_settings_are_named(cpu, settings, setting):
    with pytest.raises(warpheap.InvalidConfig, match=f"with {setting} = "):
        warpheap.Heap(device=cpu, **settings)


def test_a_device_is_a_device():
    with pytest.raises(TypeError, match="device"):
        warpheap.Heap(MIB, "cuda")


@pytest.mark.parametrize(
    "make",
    [
        lambda cpu: warpheap.Heap(MIB, cpu),
        lambda cpu: warpheap.Bump(MIB, cpu),
        lambda cpu: warpheap.FreeList(10, 64, cpu),
    ],
)
def test_a_closed_pool_raises(cpu, make):
    pool = make(cpu)
    pool.close()
    pool.close()
    for call in (lambda: pool.handle, lambda: pool.capacity, pool.stats, pool.check, pool.reset):
        with pytest.raises(warpheap.Closed, match="was closed"):
            call()


def test_a_closed_heap_raises_from_every_call(cpu):
    with warpheap.Heap(MIB, cpu) as heap:
        block = heap.allocate(16)
    assert "closed" in repr(heap)
    for call in (
        heap.report,
        heap.snapshot,
        heap.leaks,
        heap.faults,
        lambda: heap.grow_to(MIB),
        lambda: heap.allocate(16),
        lambda: heap.deallocate(block),
    ):
        with pytest.raises(warpheap.Closed, match="the heap was closed"):
            call()


def test_arenas_and_free_lists_have_statistics(cpu):
    with warpheap.Bump(MIB, cpu, shards=0) as arena:
        assert arena.stats()["remaining_bytes"] == arena.capacity == MIB
        assert arena.check() == []
    with warpheap.FreeList(100, 60, cpu, align=32) as blocks:
        assert blocks.stats()["free_blocks"] == 100 and blocks.capacity == 6400
        assert blocks.check() == [] and blocks.faults()["count"] == 0
    for make, setting in [
        (lambda: warpheap.Bump(0, cpu), "capacity"),
        (lambda: warpheap.FreeList(0, 64, cpu), "blocks"),
        (lambda: warpheap.FreeList(10, 64, cpu, align=3), "align"),
    ]:
        with pytest.raises(warpheap.InvalidConfig, match=setting):
            make()


def test_a_snapshot_can_be_saved_and_read(heap, tmp_path):
    heap.allocate(1000)
    path = tmp_path / "map.json"
    path.write_text(json.dumps(heap.snapshot("one block")))
    read = warpheap.read_snapshot(path)
    assert read["label"] == "one block" and read["heap_bytes"] == 4 * MIB
    assert any(part["kind"] == "run" for part in read["parts"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "EOF"),
        ("[1, 2]", "invalid"),
        ("{}", "missing field"),
        ("\x00\xff", "expected value"),
    ],
)
def test_a_file_that_is_no_snapshot_is_rejected(tmp_path, text, why):
    path = tmp_path / "map.json"
    path.write_text(text)
    with pytest.raises(warpheap.InvalidFile, match=f"map.json: .*{why}"):
        warpheap.read_snapshot(path)
    with pytest.raises(warpheap.InvalidFile, match="No such file"):
        warpheap.read_snapshot(tmp_path / "none.json")


def test_a_contradictory_snapshot_is_rejected(heap, tmp_path):
    path = tmp_path / "map.json"
    snapshot = heap.snapshot()
    for change in ({"schema": "warpheap-heap-map/9"}, {"slab_bytes": 3}, {"parts": []}):
        path.write_text(json.dumps(snapshot | change))
        with pytest.raises(warpheap.InvalidFile):
            warpheap.read_snapshot(path)


def test_a_report_is_text_a_dictionary_and_html(heap):
    heap.allocate(5000)
    report = heap.report()
    figures = report.to_dict()
    assert figures["used_bytes"] == heap.stats()["usage"]["used_bytes"]
    assert "in use" in str(report) or "used" in str(report)
    html = report._repr_html_()
    assert html.startswith("<div") and html.endswith("</div>") and "held by" in html
