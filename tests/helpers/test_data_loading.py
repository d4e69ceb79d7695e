"""Test the helpers and checkers of `data_loading`, with failing files, workers and memory."""

from __future__ import annotations

import gc
import os
import pickle
import resource
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import read_all
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Subset, TensorDataset
from verdicts import seeding

from helpers import data_loading
from helpers.data_loading import H5Dataset
from helpers.demos import data_loading as demos
from helpers.exercises import data_loading as exercises

multiprocessing = torch.multiprocessing
multiprocessing.set_forkserver_preload(["helpers.demos.data_loading"])
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture
def path(tmp_path):
    """Write 64 images of 32 x 32 pixels, each filled with its index, and return the path."""
    path = tmp_path / "samples.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (64, 32, 32), "uint8", chunks=(1, 32, 32))
        file["x"][:] = np.arange(64)[:, None, None]
        file["y"] = np.arange(64)
        file["one"] = 7
        file["short"] = np.arange(5)
        file.create_group("group")
    return path


# ---------------------------------------------------------------- H5Dataset


def test_h5_dataset_returns_the_samples_of_the_file(path):
    dataset = H5Dataset(path, ["x", "y"])
    assert len(dataset) == 64
    x, y = dataset[np.int64(5)]
    assert x.shape == (32, 32) and x.dtype == torch.uint8 and (x == 5).all()
    assert y.item() == 5 and dataset[-1][1].item() == 63
    assert H5Dataset(path, ["y"], transform=lambda s: s[0].item() * 2)[3] == 6
    for index in (64, -65):
        with pytest.raises(IndexError, match=f"{index} is out of range for 64"):
            dataset[index]
    assert sum(1 for _ in dataset) == 64  # iteration ends at the IndexError
    with pytest.raises(TypeError, match=r"shape of y must be a tuple such as \(3,\), got 3"):
        H5Dataset(path, {"y": 3})


def test_h5_dataset_returns_strings_as_bytes(tmp_path):
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["name"] = ["a.png", "b.png"]
    assert H5Dataset(tmp_path / "s.h5", ["name"])[1] == (b"b.png",)


def test_h5_dataset_reads_every_number_type(tmp_path):
    kinds = ("i1", "u1", ">i4", "<i4", ">f4", ">f8", "f2", "?", ">c8")
    with h5py.File(tmp_path / "n.h5", "w") as file:
        for kind in kinds:
            file[kind] = np.arange(6).reshape(3, 2).astype(kind)
            file[f"{kind} each"] = np.arange(3).astype(kind)
        file["fixed"] = np.array([b"ab", b"c", b""])
    for kind in kinds:
        row, one = H5Dataset(tmp_path / "n.h5", [kind, f"{kind} each"])[2]
        assert torch.equal(row, torch.tensor([4, 5]).to(row.dtype)), kind
        assert one == torch.tensor(2).to(one.dtype), kind
        assert row.dtype == one.dtype == torch.as_tensor(np.zeros(1, kind.strip("<>"))).dtype
    assert H5Dataset(tmp_path / "n.h5", ["fixed"])[0] == (b"ab",)


@pytest.mark.parametrize("index", [1.7, 1.0, "1", None, slice(2)])
def test_index_must_be_an_integer(path, index):
    with pytest.raises(TypeError):
        H5Dataset(path, ["x"])[index]
    assert H5Dataset(path, ["y"])[torch.tensor(3)][0] == 3


LOCKED = """
import sys, h5py
try:
    h5py.File(sys.argv[1], **eval(sys.argv[2]))
    print("read")
except OSError as error:
    print(error)
"""


def test_file_open_for_writing_is_locked(path):
    def other(options="{}", **env):
        command = [sys.executable, "-c", LOCKED, str(path), options]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})
        return done.stdout.strip()

    with h5py.File(path, "r+"):
        assert "Unable to synchronously open file (unable to lock file" in other()
        assert other("{'locking': False}") == other(HDF5_USE_FILE_LOCKING="FALSE") == "read"


def test_empty_file_has_no_samples(tmp_path):
    with h5py.File(tmp_path / "e.h5", "w") as file:
        file["x"] = np.zeros((0, 3))
    dataset = H5Dataset(tmp_path / "e.h5", {"x": (3,)})
    assert len(dataset) == 0 and list(dataset) == []


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (["x", "z"], r"has no dataset 'z'; it has group, one, short, x, y"),
        (["group"], "has no dataset 'group'"),
        (["one"], "a single value, not one per sample"),
        (["x", "short"], r"different numbers of rows: \{'x': 64, 'short': 5\}"),
        ({"x": (28, 28)}, r"samples of shape \(32, 32\), expected \(28, 28\)"),
        ({"y": (1,)}, r"samples of shape \(\), expected \(1,\)"),
        ([], "at least one dataset"),
        ("x", "in a sequence, got 'x'"),
    ],
)
def test_wrong_key_or_shape_raises_in_the_constructor(path, keys, says):
    with pytest.raises(ValueError, match=says):
        H5Dataset(path, keys)


def test_missing_truncated_or_foreign_file_raises_in_the_constructor(path, tmp_path):
    for name in ("no.h5", ""):  # a missing file, a folder
        with pytest.raises(FileNotFoundError, match="no file"):
            H5Dataset(tmp_path / name, ["x"])
    whole = path.read_bytes()
    for size in (len(whole) - 1, len(whole) // 2, 100, 0):
        cut = tmp_path / "cut.h5"
        cut.write_bytes(whole[:size])
        with pytest.raises(OSError, match=r"cut\.h5 is not a complete HDF5 file"):
            H5Dataset(cut, ["x"])
    assert path.read_bytes() == whole


def test_later_truncated_file_raises_in_the_worker(path):
    dataset = H5Dataset(path, ["x", "y"])
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(OSError, match="is not a complete HDF5 file"):
        dataset[0]
    with pytest.raises(OSError, match="is not a complete HDF5 file"):
        list(DataLoader(dataset, num_workers=1))
    path.unlink()
    with pytest.raises(FileNotFoundError, match="no file"):
        dataset[0]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, r"open\.h5 was truncated: it had \d+ bytes, now \d+"),
        ({"chunks": (1, 32, 32)}, r"open\.h5 was truncated: it had \d+ bytes, now \d+"),
        ({"chunks": (1, 32, 32), "compression": "gzip"}, "filter"),
    ],
)
def test_file_truncated_while_open_raises(tmp_path, options, says):
    path = tmp_path / "open.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.ones((64, 32, 32)), **options)
    dataset = H5Dataset(path, ["x"])
    assert (dataset[63][0] == 1).all()
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(OSError, match=says):
        dataset[62]
    if h5py.version.hdf5_version_tuple == (2, 0, 0) and "compression" not in options:
        assert (dataset.file["x"][62] == 0).all()  # h5py alone returns zeros


def test_growing_file_stays_readable(path):
    dataset = H5Dataset(path, ["x"])
    dataset[0]
    with open(path, "ab") as file:
        file.write(b"more")
    assert len(dataset[1]) == 1


def write_too_much(path, queue):
    demos.small_files(0)
    try:
        with h5py.File(path, "w") as file:
            file["x"] = np.ones((64, 64, 64))
    except OSError as error:
        queue.put(str(error))


def test_failed_write_raises_and_its_file_is_rejected(tmp_path):
    """A limit on the file size simulates a full disk."""
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=write_too_much, args=(tmp_path / "half.h5", queue))
    child.start()
    child.join(60)
    assert "write failed" in queue.get() and (tmp_path / "half.h5").exists()
    with pytest.raises((OSError, ValueError), match=r"has no dataset|no complete"):
        H5Dataset(tmp_path / "half.h5", ["x"])


def test_h5_dataset_pickles_and_closes(path):
    dataset = H5Dataset(path, ["x", "y"])
    assert dataset._file is None  # checked and closed
    dataset[0]
    handle = dataset.file
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy._file is None and dataset.file is handle and handle.id.valid
    assert copy[7][1] == 7
    dataset.close()
    assert not handle.id.valid
    dataset.close()
    assert dataset[3][1] == 3  # opened again
    assert data_loading.unpicklable(dataset) == []
    dataset.transform = lambda sample: sample
    assert data_loading.unpicklable(dataset) == ["transform"]


@pytest.mark.parametrize(("method", "workers"), [("fork", 2), ("forkserver", 2), ("spawn", 1)])
def test_h5_dataset_works_with_every_start_method(path, method, workers):
    eager = demos.EagerH5(path, ["x", "y"])
    want = "64 samples, 0 wrong" if method == "fork" else "TypeError: h5py objects cannot be"
    assert read_all(eager, method).startswith(want)
    eager.file.close()
    dataset = H5Dataset(path, ["x", "y"])
    dataset[0]  # open in this process, too
    assert read_all(dataset, method, workers) == "64 samples, 0 wrong"
    assert dataset[1][1] == 1


class Slots:
    __slots__ = ("fine", "odd")


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: [1, 2], []),
        (lambda: range(3), []),
        (lambda: TensorDataset(torch.arange(2)), []),
        (lambda: [lambda: 0], ["list"]),
        (lambda: (i for i in range(3)), ["generator"]),
    ],
)
def test_unpicklable_returns_the_unpicklable_attributes(make, found):
    assert data_loading.unpicklable(make()) == found


def test_unpicklable_searches_slots():
    dataset = Slots()
    dataset.fine, dataset.odd = 1, lambda: 0
    assert data_loading.unpicklable(dataset) == ["odd"]


def test_only_the_eager_dataset_shares_its_file_position(path):
    eager = demos.EagerH5(path, ["x"])
    assert demos.shares_position(eager)
    eager.file.close()
    dataset = H5Dataset(path, ["x"])
    dataset[0]
    assert not demos.shares_position(dataset)


def test_read_all_counts_wrong_samples():
    x = torch.arange(6)[:, None].repeat(1, 3)
    y = torch.arange(6)
    assert read_all(TensorDataset(x, y), "fork", 1) == "6 samples, 0 wrong"
    x[2, 1] = x[5, 0] = 9
    assert read_all(TensorDataset(x, y), "fork", 1) == "6 samples, 2 wrong"


# ---------------------------------------------------------------- chunks


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(0, 11), st.booleans())
def test_chunk_reads_counts_chunks(tmp_path_factory, rows, high, wide, index, packed):
    path = tmp_path_factory.mktemp("chunks") / "c.h5"
    data = np.random.default_rng(0).integers(0, 256, (12, 4, 4), dtype="uint8")
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "x", data=data, chunks=(rows, high, wide), compression="gzip" if packed else None
        )
    tiles = -(-4 // high) * -(-4 // wide)
    got = data_loading.chunk_reads(path, "x", [index])
    assert got["chunks"] == tiles
    assert got["unpacked"] == pytest.approx(tiles * rows * high * wide / 16, abs=0.0501)


def test_cache_saves_chunk_reads_only_in_order(tmp_path):
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file.create_dataset(
            "x", data=np.zeros((32, 16, 16)), chunks=(8, 16, 16), compression="gzip"
        )
    one = 8 * 16 * 16 * 8
    back_and_forth = [0, 31] * 4

    def count(order, cache):
        return data_loading.chunk_reads(tmp_path / "c.h5", "x", order, cache)["chunks"]

    assert count(range(32), 0) == 32 and count(range(32), one) == 4
    assert count(back_and_forth, one) == 8 and count(back_and_forth, 2 * one) == 2


def test_chunk_reads_requires_chunks_and_an_index(path):
    with pytest.raises(ValueError, match="y of .* is not stored in chunks"):
        data_loading.chunk_reads(path, "y", [0])
    with pytest.raises(ValueError, match="at least one index"):
        data_loading.chunk_reads(path, "x", [])


# ---------------------------------------------------------------- workers


def test_killed_worker_error_names_the_signal_under_fork():
    with demos.stderr_of_workers() as written:
        assert demos.killed(signal.SIGBUS) == "killed by signal: Bus error."
    assert written[0].startswith("ERROR: Unexpected bus error encountered in worker.")
    assert demos.killed(signal.SIGKILL) == "killed by signal: Killed."


def test_killed_worker_error_names_no_signal_under_forkserver():
    assert demos.killed(signal.SIGKILL, "forkserver") == "exited unexpectedly"


def test_kept_tensors_keep_files_open():
    def count():
        return len(os.listdir("/proc/self/fd"))

    loader = DataLoader(TensorDataset(torch.arange(50)), num_workers=1)
    before = count()
    kept = [x for (x,) in loader]
    assert count() - before >= 50
    del kept
    copies = [x.clone() for (x,) in loader]
    assert count() - before < 10 and len(copies) == 50
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with pytest.raises(RuntimeError, match="Too many open files"), demos.few_files(20):
        copies = [x for (x,) in loader]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limit
    with demos.sharing("file_system"), demos.few_files(20):
        assert len([x for (x,) in loader]) == 50


UNGUARDED = """
import torch
from torch.utils.data import DataLoader
loader = DataLoader(range(4), num_workers=1, multiprocessing_context="spawn")
for batch in loader:
    pass
"""


def test_script_without_main_guard_raises_in_the_worker(tmp_path):
    script = tmp_path / "bare.py"
    for text, fails in (
        (UNGUARDED, True),
        (UNGUARDED.replace("for", "if __name__ == '__main__':\n  for"), False),
    ):
        script.write_text(text)
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
        assert ("An attempt has been made to start a new process" in done.stderr) == fails
        assert bool(done.returncode) == fails


def test_epoch_after_a_killed_worker_is_complete(path):
    dataset = H5Dataset(path, ["x", "y"])
    demos.killed(signal.SIGKILL)
    assert read_all(dataset, "fork") == "64 samples, 0 wrong"


def test_failed_loader_ends_its_workers(recwarn):
    """A failed loader ends its workers: in a fork they would warn and take 5 s to collect."""
    gc.collect()  # the workers of other tests, which a caught exception may still reference
    before = set(multiprocessing.active_children())
    full = {"num_workers": 1, "worker_init_fn": demos.small_files}
    demos.outcome(DataLoader(demos.Blank((512, 1024)), **full))
    assert set(multiprocessing.active_children()) <= before
    demos.killed(signal.SIGKILL)
    read_all(TensorDataset(torch.zeros(2), torch.zeros(1)[:, None].expand(2, 1)), "fork")
    assert set(multiprocessing.active_children()) <= before


def test_full_shared_memory_raises_or_times_out():
    full = {"num_workers": 1, "worker_init_fn": demos.small_files, "batch_size": 4}
    big = demos.Blank((512, 1024))
    assert demos.outcome(DataLoader(big, **full)).startswith("RuntimeError: unable to")
    with demos.stderr_of_workers() as written:
        full |= {"multiprocessing_context": "fork", "collate_fn": demos.stack_only}
        loader = DataLoader(big, timeout=2, **full)
        assert "timed out after 2 seconds" in demos.outcome(loader)
    assert any("unable to resize file <…>" in line for line in written)
    assert demos.outcome(DataLoader(big, batch_size=4, num_workers=1)) == "done"


TINY = """
    import os, torch
    from torch.utils.data import DataLoader
    from helpers.demos.data_loading import Blank, outcome, sharing, stack_only
    big = Blank((1024, 1024))  # 4 MiB a sample, batches of 16 MiB

    def go(workers=1, **options):
        loader = DataLoader(big, batch_size=4, num_workers=workers, **options)
        print(outcome(loader), flush=True)

    go(0)
    go(1)
    with sharing("file_system"):
        go(1)
    go(1, collate_fn=stack_only, timeout=3)
    os.system("mount -o remount,size=96m /dev/shm")
    go(1)
"""


def test_small_dev_shm_requires_no_workers_or_a_larger_dev_shm(tmp_path):
    """With a real /dev/shm of 8 MB, no workers or a larger one help; needs mount rights."""
    script = tmp_path / "tiny.py"
    script.write_text(textwrap.dedent(TINY))
    mount = "mount -t tmpfs -o size=8m tmpfs /dev/shm"
    try:
        may = subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True)
    except FileNotFoundError:
        pytest.skip("no unshare")
    if may.returncode:
        pytest.skip("may not mount a /dev/shm of its own")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mount} && exec "$0" "$1"', sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 5, done.stderr
    assert lines[0] == lines[4] == "done"
    for line in lines[1:3]:
        assert line.startswith("RuntimeError: unable to allocate shared memory(shm)"), line
    assert "timed out" in lines[3]


def test_reading_a_list_copies_it_into_the_worker():
    names = [f"images/{i:08d}.jpg" for i in range(50_000)]
    size = sum(map(len, names))
    assert demos.copied_by_reading(names) > size
    assert demos.copied_by_reading(np.array(names, "S")) < size / 2


def test_shared_memory_needed_counts_prefetched_batches():
    batch = {"x": torch.zeros(4, 3), "y": (torch.zeros(2, dtype=torch.uint8), ["a"])}
    assert data_loading.tensor_bytes(batch) == 50
    assert data_loading.shared_memory_needed(batch, 0) == 0
    assert data_loading.shared_memory_needed(batch, 0, DataLoader([0]).prefetch_factor) == 0
    assert data_loading.shared_memory_needed(batch, 2) == 5 * 50
    assert data_loading.shared_memory_needed(batch, 2, prefetch_factor=1) == 3 * 50
    for bad in ({"workers": -1}, {"workers": 1, "prefetch_factor": 0}):
        with pytest.raises(ValueError, match="expected workers >= 0"):
            data_loading.shared_memory_needed(batch, **bad)


def shm(send):
    """Return the shared memory, in bytes, that a worker needs for the result of `send`."""
    loader = DataLoader(
        [0],
        batch_size=None,
        num_workers=1,
        collate_fn=lambda _: send(),
        multiprocessing_context="fork",
    )
    before = {os.fstat(int(fd)).st_ino for fd in _open_files()}
    batch = next(iter(loader))
    found = {stat.st_ino: stat for stat in (os.fstat(int(fd)) for fd in _open_files())}
    gained = [s.st_size for inode, s in found.items() if inode not in before and s.st_nlink == 0]
    return sum(gained), batch


def _open_files():
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{fd}").startswith("/dev/shm/torch_"):
                yield fd
        except FileNotFoundError:
            pass


@dataclass
class Pair:
    x: torch.Tensor
    y: torch.Tensor


def the_same_twice():
    x = torch.zeros(10)
    return [x, {"x": x, "name": "a"}]


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (lambda: torch.zeros(1000)[:3], 4000),
        (lambda: torch.zeros(1).expand(1000), 4),
        (the_same_twice, 40),
        (lambda: Pair(torch.zeros(3), torch.zeros(2)), 20),
        (lambda: torch.eye(3).to_sparse(), 2 * 3 * 8 + 3 * 4),
        (lambda: torch.sparse_csr_tensor([0, 1, 2, 3], [0, 1, 2], torch.ones(3)), 32 + 24 + 12),
        (lambda: torch.sparse_csc_tensor([0, 1, 2, 3], [0, 1, 2], torch.ones(3)), 32 + 24 + 12),
        (lambda: torch.zeros(0), 0),
        (lambda: (np.zeros(3), "a", None, Pair), 0),
    ],
)
def test_tensor_bytes_equals_the_bytes_a_worker_writes(make, size):
    assert data_loading.tensor_bytes(make()) == size
    written, batch = shm(make)
    assert written == size and type(batch) is type(make())


@pytest.mark.parametrize("bad", [{"workers": 1.5}, {"workers": 2, "prefetch_factor": 2.5}])
def test_shared_memory_needed_requires_integers(bad):
    with pytest.raises(TypeError, match="must be an int, got [12].5"):
        data_loading.shared_memory_needed(torch.zeros(3), **bad)


def test_sharing_restores_the_strategy_after_an_error():
    before = multiprocessing.get_sharing_strategy()
    with pytest.raises(KeyError), demos.sharing("file_system"):
        assert multiprocessing.get_sharing_strategy() == "file_system"
        raise KeyError
    assert multiprocessing.get_sharing_strategy() == before


def draw(dataset, **options):
    torch.manual_seed(0)
    loader = DataLoader(dataset, **options)
    return [float(x) for epoch in range(2) for x in loader]


def test_random_numbers_of_workers_depend_on_the_generator():
    for source in ("numpy", "torch"):
        numbers = draw(demos.Augmented(source), num_workers=2)
        assert len(set(numbers)) == 16
        assert numbers == draw(demos.Augmented(source), num_workers=2)
    own = demos.Augmented("own")
    assert len(set(draw(own, num_workers=2))) == 4
    fresh = draw(own, num_workers=2, worker_init_fn=data_loading.fresh_rng)
    assert len(set(fresh)) == 16
    part = Subset(Subset(own, range(8)), range(8))
    assert len(set(draw(part, num_workers=2))) == 4
    assert len(set(draw(part, num_workers=2, worker_init_fn=data_loading.fresh_rng))) == 16
    by_index = demos.Augmented("index")
    assert draw(by_index) == draw(by_index, num_workers=2)
    first = [by_index[i] for i in range(8)]
    by_index.epoch = 1
    assert not set(first) & {by_index[i] for i in range(8)}
    with pytest.raises(ValueError, match="source must be"):
        demos.Augmented("random")


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_stream_is_repeated_per_worker_unless_split(workers):
    once = DataLoader(demos.Stream(7, split=True), batch_size=2, num_workers=workers)
    assert sorted(torch.cat(list(once)).tolist()) == list(range(7))
    all_of_them = DataLoader(demos.Stream(7), batch_size=2, num_workers=workers)
    assert sorted(torch.cat(list(all_of_them)).tolist()) == sorted([*range(7)] * max(workers, 1))


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 5), st.integers(1, 5), st.integers(1, 12), st.integers(0, 4), st.integers(1, 3)
)
def test_schedule_is_consistent(load, train, batches, workers, prefetch):
    rows = demos.schedule(load, train, batches, workers, prefetch)
    trained = rows.pop("train")
    loaded = sorted(sum(rows.values(), []))
    assert [b for b, *_ in trained] == [b for b, *_ in loaded] == list(range(batches))
    for (batch, begin, end), (_, first, ready) in zip(trained, loaded, strict=True):
        assert end - begin == train and ready - first == load and ready <= begin
        ahead = batch - workers * prefetch
        if workers and ahead >= 0:
            assert first >= trained[ahead][1]
    for spans in (trained, *rows.values()):
        assert all(a[2] <= b[1] for a, b in zip(spans, spans[1:], strict=False))
    if workers == 0:
        assert trained[-1][2] == batches * (load + train)


def test_timeline_matches_the_chapter():
    assert demos.schedule(2, 1, 6, 0)["train"][-1][2] == 18
    assert [begin for _, begin, _ in demos.schedule(2, 1, 6, 2)["train"]] == [2, 3, 4, 5, 6, 7]
    figure = demos.draw_timeline(2, 1, 6, (0, 2))
    assert [axis.get_title(loc="left") for axis in figure.axes] == [
        "num_workers=0",
        "num_workers=2",
    ]
    assert [len(axis.patches) for axis in figure.axes] == [12, 12]


def test_loader_requests_prefetch_factor_batches_per_worker():
    ordered = []
    sampler = (ordered.append(i) or i for i in range(32))
    batches = iter(DataLoader(range(32), sampler=sampler, num_workers=2, prefetch_factor=3))
    assert len(ordered) == 6
    next(batches)
    assert len(ordered) == 7


def threads(dataset, method):
    return [int(n) for n in DataLoader(dataset, num_workers=1, multiprocessing_context=method)]


class Threads:
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return torch.get_num_threads()


def test_worker_uses_one_thread():
    assert threads(Threads(), "fork") == [1]


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_persistent_workers_receive_only_shared_memory(method):
    dataset = demos.Where()
    dataset.epoch = torch.tensor(0).share_memory_()
    options = {"num_workers": 1, "persistent_workers": True, "multiprocessing_context": method}
    loader = DataLoader(dataset, **options)
    for epoch in range(2):
        dataset.epoch.fill_(epoch)
        assert {int(e) for _, e in loader} == {epoch}
    assert len({int(pid) for _ in range(2) for pid, _ in loader}) == 1
    dataset.epoch = 7
    assert {int(e) for _, e in loader} == {1}


def test_workers_speed_up_waiting_only():
    assert demos.gain(demos.Waiting(samples=16), 2) > 1.2
    assert demos.gain(TensorDataset(torch.arange(400)), 2) < 1
    with pytest.raises(ValueError, match="got workers=0"):
        demos.gain(range(4), 0)


# ---------------------------------------------------------------- exercises

CHECKED = 20  # runs of a checker on each answer


def blocks(n, info):
    if info is None:
        return range(n)
    return range(n * info.id // info.num_workers, n * (info.id + 1) // info.num_workers)


def larger_blocks_first(n, info):
    if info is None:
        return range(n)
    return torch.arange(n).tensor_split(info.num_workers)[info.id].tolist()


def no_tail(n, info):
    info = info or SimpleNamespace(id=0, num_workers=1)
    size = n // info.num_workers
    return range(size * info.id, size * (info.id + 1))


def long_tail(n, info):
    info = info or SimpleNamespace(id=0, num_workers=1)
    size = n // info.num_workers
    return range(size * info.id, n if info.id == info.num_workers - 1 else size * (info.id + 1))


def strided(n, info):
    return range(n) if info is None else range(info.id, n, info.num_workers)


def no_worker_forgotten(n, info):
    return range(n * info.id // info.num_workers, n * (info.id + 1) // info.num_workers)


def one_more_when_it_divides(n, info):
    """Return blocks that are one index too long where `n` divides evenly."""
    if info is None:
        return range(n)
    size, rest = divmod(n, info.num_workers)
    rest = rest or info.num_workers
    first = size * info.id + min(info.id, rest)
    return range(first, first + size + (info.id < rest))


def rounded_up(n, info):
    """Give every worker a block of the largest size."""
    if info is None:
        return range(n)
    size = -(-n // info.num_workers)
    return range(min(n, size * info.id), min(n, size * (info.id + 1)))


def by_fractions(n, info):
    """With 22 workers and 22 samples two get 0 and 2: `k / 22 * 22` can round below `k`."""
    if info is None:
        return range(n)
    begin, end = (int(k / info.num_workers * n) for k in (info.id, info.id + 1))
    return range(begin, end)


def by_floats(n, info):
    """Lose the last index where `n / workers * workers` is below `n`."""
    if info is None:
        return range(n)
    size = n / info.num_workers
    return range(int(size * info.id), int(size * (info.id + 1)))


def off_by_one(n, info):
    return [i + 1 for i in blocks(n, info)]


def moving(n, info):
    """Return the right block, then change `info` to the next worker's."""
    block = blocks(n, info)
    if info is not None:
        info.id += 1
    return block


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (blocks, None),
        (larger_blocks_first, None),
        (lambda n, info: range(n), "read some indices twice"),
        (no_tail, "leave out some of"),
        (long_tail, "differ by more than one"),
        (rounded_up, "differ by more than one"),
        (by_fractions, "differ by more than one"),
        (by_floats, "workers do not read 61 indices in all"),
        (strided, "a share is not one block"),
        (no_worker_forgotten, "your code raised AttributeError"),
        (off_by_one, "expected all indices in order"),
        (one_more_when_it_divides, "workers do not read 6 indices in all"),
        (lambda n, info: None, "expected indices, got None"),
        (lambda n, info: [np.int64(i) for i in blocks(n, info)], None),
        (lambda n, info: iter(blocks(n, info)), None),
        (lambda n, info: [i == 1 if i < 2 else i for i in blocks(n, info)], "plain integers"),
        (seeding(blocks), "state of torch was changed"),
        (moving, "info was changed"),
    ],
)
def test_check_share_accepts_right_and_rejects_wrong_answers(answer, says):
    expect_verdict(exercises.check_share, answer, says, several=answer is long_tail)


def expect_verdict(check, answer, says, several=False):
    """Assert the same verdict on every draw, with `says` each time, or once if `several`."""
    messages = set()
    for seed in range(CHECKED):
        torch.manual_seed(seed)
        verdict = check(answer)
        assert verdict.passed == (says is None), (seed, verdict)
        messages.add(verdict.message)
    if says is not None:
        hits = [says in message for message in messages]
        assert any(hits) if several else all(hits), messages


def pad(samples):
    values = pad_sequence(samples, batch_first=True)
    lengths = torch.tensor([len(sample) for sample in samples])
    return values, torch.arange(values.shape[1]) < lengths[:, None]


def pad_by_ones(samples):
    ones = [torch.ones_like(sample, dtype=torch.bool) for sample in samples]
    return pad_sequence(samples, batch_first=True), pad_sequence(ones, batch_first=True)


def pad_with_a_marker(samples, marker=-100):
    values = pad_sequence(samples, batch_first=True, padding_value=marker)
    real = values != marker
    return values * real, real


def pad_row_by_row(samples):
    values = samples[0].new_zeros(len(samples), max(map(len, samples)))
    real = torch.zeros_like(values, dtype=torch.bool)
    for i, sample in enumerate(samples):
        values[i, : len(sample)] = sample
        real[i, : len(sample)] = True
    return values, real


def through_float(samples):
    values, real = pad([sample.float() for sample in samples])
    return values.to(samples[0].dtype), real


def lengths_in_the_dtype(samples):
    values = pad(samples)[0]
    lengths = torch.tensor([len(s) for s in samples]).to(values.dtype)
    return values, torch.arange(values.shape[1]) < lengths[:, None]


def pad_with_nan(samples):
    if not samples[0].is_floating_point():
        return pad(samples)
    values = pad_sequence(samples, batch_first=True, padding_value=float("nan"))
    return values.masked_fill(values.isnan(), 0), ~values.isnan()


def without_double(samples):
    values, real = pad(samples)
    return values.float() if values.dtype == torch.float64 else values, real


def emptying(samples):
    """Return the right batch, then zero the samples."""
    batch = pad(samples)
    for sample in samples:
        sample.detach().zero_()
    return batch


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda s: (pad(s)[0], pad_with_a_marker(s)[1]), "use the lengths"),
        (pad, None),
        (pad_by_ones, None),
        (lambda s: (pad(s)[0], pad(s)[0] != 0), "a real 0 is not padding"),
        (lambda s: (pad(s)[0], ~pad(s)[1]), "invert it"),
        (lambda s: (pad(s)[0], pad(s)[1].float()), "expected a mask of bool"),
        (lambda s: (pad(s)[0].T, pad(s)[1].T), "expected values of shape"),
        (lambda s: pad(sorted(s, key=len)), "a sample is not at the start of its row"),
        (lambda s: (pad_sequence(s, True, -1), pad(s)[1]), "the padding is not 0"),
        (lambda s: (pad(s)[0].float(), pad(s)[1]), "int64 samples became torch.float32"),
        (lambda s: (pad(s)[0], pad(s)[1][:, :1]), "expected a mask of the shape"),
        (lambda s: pad(s)[0], "expected a pair"),
        (lambda s: None, "expected a pair"),
        (torch.stack, "your code raised RuntimeError"),
        (pad_row_by_row, None),
        (lengths_in_the_dtype, "keep the lengths as int64"),
        (lambda s: (pad(s)[0].detach(), pad(s)[1]), "the gradient does not flow"),
        (without_double, "float64 samples became torch.float32"),
        (through_float, "int64 samples were rounded"),
        (pad_with_nan, "a real value may be nan"),
        (seeding(pad), "state of torch was changed"),
        (emptying, "] was changed: work on a copy"),
    ],
)
def test_check_pad_accepts_right_and_rejects_wrong_answers(answer, says):
    sometimes = says in ("expected values of shape", "a sample is not at the start of its row")
    sometimes = sometimes or says == "use the lengths"
    expect_verdict(exercises.check_pad, answer, says, several=sometimes)


# ---------------------------------------------------------------- sentences of the chapter


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_tensors_of_a_pickled_dataset_are_shared(method):
    table = torch.utils.data.TensorDataset(torch.arange(4.0))
    loader = torch.utils.data.DataLoader(
        table, num_workers=1, persistent_workers=True, multiprocessing_context=method
    )
    assert [float(x) for (x,) in loader] == [0, 1, 2, 3]
    shared = table.tensors[0].is_shared()
    assert shared == (method != "fork")
    table.tensors[0].mul_(10)
    assert [float(x) for (x,) in loader] == ([0, 10, 20, 30] if shared else [0, 1, 2, 3])


@pytest.mark.parametrize("sample", [None, {1, 2}, 1j])
def test_default_collate_rejects_unsupported_types(sample):
    with pytest.raises(TypeError, match="batch must contain"):
        list(torch.utils.data.DataLoader([sample]))


@pytest.mark.parametrize("epochs", [1, 2])
def test_number_of_workers_does_not_change_the_batches(epochs):
    def batches(workers):
        torch.manual_seed(0)
        loader = DataLoader(torch.arange(10), batch_size=4, shuffle=True, num_workers=workers)
        return [batch.tolist() for _ in range(epochs) for batch in loader]

    assert batches(0) == batches(1) == batches(2)
