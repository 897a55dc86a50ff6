"""Hits of faiss, ann-benchmarks and big-ann are read as their own programs write them, and ours are
read by them."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, InputError, ShapeError
from mercore.stores.formats import open_source
from mercore.stores.results.hits import (
    FORMATS,
    Hits,
    certificate_path,
    check_hits_path,
    found_certificate,
    open_hits,
    read_hits,
    write_hits,
)
from tests.stores.results.test_hits import IDS, SCORES, same, told


def hdf5(path: Path, **datasets: Any) -> str:
    """Write an HDF5 file with h5py alone."""
    with h5py.File(path, "w") as file:
        for name, values in datasets.items():
            file[name] = values
    return str(path)


@pytest.mark.parametrize(
    "ids", [IDS, np.asfortranarray(IDS), IDS.astype(">i8"), IDS.astype(np.int32)]
)
def test_ids_that_numpy_saved(ids: NDArray[Any], tmp_path: Path) -> None:
    np.save(tmp_path / "I.npy", ids)
    same(read_hits(str(tmp_path / "I.npy")), None, IDS)


@pytest.mark.parametrize("names", [("ids", "scores"), ("I", "D"), ("neighbors", "distances")])
@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_ids_and_scores_by_the_names_of_each_program(
    names: tuple[str, str], suffix: str, tmp_path: Path
) -> None:
    path, arrays = tmp_path / f"a{suffix}", dict(zip(names, (IDS, SCORES), strict=True))
    if suffix == ".npz":
        np.savez(path, **arrays)  # type: ignore[arg-type]
        same(read_hits(str(path)), SCORES, IDS)
    else:
        hdf5(path, **arrays)
        dataset = "" if names[0] == "neighbors" else f"::{names[0]}"
        same(read_hits(f"{path}{dataset}"), None if dataset else SCORES, IDS)


def test_distances_of_whole_numbers_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", I=IDS, D=np.arange(6, dtype=np.int32).reshape(2, 3))
    expected = np.arange(6, dtype=np.float64).reshape(2, 3)
    same(read_hits(str(tmp_path / "a.npz")), expected, IDS)


def test_the_truth_of_ann_benchmarks_is_read_beside_its_vectors(tmp_path: Path) -> None:
    rows = np.zeros((5, 4), np.float32)
    path = hdf5(tmp_path / "a.hdf5", train=rows, test=rows, neighbors=IDS, distances=SCORES)
    same(read_hits(path), SCORES, IDS)


@pytest.mark.parametrize("form", FORMATS)
def test_a_format_that_is_named_needs_no_suffix(form: str, tmp_path: Path) -> None:
    path, scores = tmp_path / "bigann-10M", None if form == "npy" else SCORES
    write_hits(str(path), Hits(scores=SCORES, ids=IDS), form.upper())
    write_hits(str(tmp_path / f"a.{form}"), Hits(scores=SCORES, ids=IDS))
    assert path.read_bytes() == (tmp_path / f"a.{form}").read_bytes()
    same(read_hits(str(path), form), scores, IDS)
    same(open_hits(str(path), form.upper()), scores, IDS)
    with pytest.raises(InputError, match=r"^unknown format of hits: found 'csv', expected ivecs "):
        read_hits(str(path), "csv")


def test_lists_of_ids_are_hits() -> None:
    same(open_hits(IDS.tolist()), None, IDS)
    with pytest.raises(ShapeError, match=r"^hits: the lists of ids have different lengths, "):
        open_hits([[1, 2], [3]])
    with pytest.raises(ShapeError, match=r"^hits: ids are float64\[1, 1\], expected integers "):
        open_hits(np.ones((1, 1)))  # type: ignore[arg-type]


def test_ids_alone_are_written_for_numpy(tmp_path: Path) -> None:
    assert write_hits(str(tmp_path / "a.npy"), Hits(scores=SCORES, ids=IDS)) == [
        str(tmp_path / "a.npy")
    ]
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), IDS, strict=True)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("euclidean", [False, True])
def test_hdf5_is_as_ann_benchmarks_reads_it(euclidean: bool, k: int, tmp_path: Path) -> None:
    path, scores = str(tmp_path / "a.h5"), SCORES[:, :k]
    if euclidean:
        scores = 1 - scores
    hits = Hits(scores=scores, ids=IDS[:, :k])
    write_hits(path, hits, distances=euclidean)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["neighbors"], hits.ids)
        distances = np.asarray(file["distances"])
    np.testing.assert_array_equal(distances, scores if euclidean else 1 - scores)
    same(read_hits(path), scores, hits.ids)
    first = Path(path).read_bytes()
    write_hits(path, hits, distances=euclidean)
    assert Path(path).read_bytes() == first


def test_numbers_in_other_files_are_not_read(tmp_path: Path) -> None:
    other = hdf5(tmp_path / "other.h5", neighbors=IDS)
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["neighbors"] = h5py.ExternalLink(other, "neighbors")
    assert "lie in another file" in told(FormatError, read_hits, tmp_path / "link.h5")
    layout = h5py.VirtualLayout(shape=IDS.shape, dtype=IDS.dtype)
    layout[:] = h5py.VirtualSource(other, "neighbors", shape=IDS.shape)
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        file.create_virtual_dataset("neighbors", layout)
    assert "lie in another file" in told(FormatError, read_hits, tmp_path / "virtual.h5")


def test_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("neighbors", (1 << 62, 100), "i8", chunks=(1024, 100))
    assert "but the file has only " in told(FormatError, read_hits, tmp_path / "a.h5")
    with pytest.raises(FormatError, match="but the file has only "):
        open_source(f"{tmp_path}/a.h5::neighbors")


def test_damaged_hdf5_is_refused(tmp_path: Path) -> None:
    path = Path(hdf5(tmp_path / "a.h5", neighbors=IDS))
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert told(FormatError, read_hits, path).startswith("a.h5: it cannot be read (")
    path.write_bytes(whole)
    assert told(FormatError, read_hits, f"{path}::no") == (
        "a.h5: no dataset 'no', expected one of: neighbors. Fix: name one, as a.h5::NAME"
    )


def test_vectors_are_no_ids(tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", np.zeros((2, 3), np.uint8))
    assert told(FormatError, read_hits, tmp_path / "q.npy") == (
        "q.npy: ids uint8[2, 3], expected ids int64[nq, k]. Fix: name a file of hits."
    )
    np.save(tmp_path / "long.npy", IDS)
    (tmp_path / "long.npy").write_bytes((tmp_path / "long.npy").read_bytes() + b"x")
    assert "177 bytes, expected 176 for" in told(FormatError, read_hits, tmp_path / "long.npy")


def test_each_file_of_hits_has_a_certificate_of_its_own(tmp_path: Path) -> None:
    hits = Hits(scores=SCORES, ids=IDS)
    names = [str(tmp_path / name) for name in ("a.npz", "a.ivecs")]
    assert len({certificate_path(name) for name in names}) == 2
    old = tmp_path / "a.certificate.npz"  # as the first versions called it
    write_hits(names[0], hits)
    old.touch()
    assert found_certificate(names[0]) == str(old)
    write_hits(names[1], hits)
    assert [found_certificate(name) for name in names] == [None, None]  # of either
    Path(certificate_path(names[1])).touch()
    assert [found_certificate(name) for name in names] == [str(old), certificate_path(names[1])]
    write_hits(names[0], hits)
    assert not old.exists()
    assert Path(certificate_path(names[1])).exists()


def test_an_existing_file_is_replaced_only_on_demand(tmp_path: Path) -> None:
    path = str(tmp_path / "a.npz")
    check_hits_path(path, replace=False)
    Path(path).write_bytes(b"another's")
    with pytest.raises(
        Exception, match=r"a\.npz exists: expected a new path\. Fix: name another, "
    ):
        check_hits_path(path, replace=False)
    check_hits_path(path)
