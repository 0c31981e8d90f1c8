"""The data that comes with the course is complete and unchanged, and says where it is from."""

import collections
import hashlib

import numpy as np
import pytest

from common import samples

SAMPLES = [
    samples.DIGITS,
    samples.PHOTOGRAPH,
    samples.NOVEL,
    samples.MATMULS,
    samples.LANGUAGE_MODEL,
    samples.PUBLISHED_RUNS,
    samples.COMPILED,
]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.file)
def test_a_sample_has_its_hash_its_source_and_its_licence(sample):
    data = (samples.FOLDER / sample.file).read_bytes()
    assert hashlib.sha256(data).hexdigest() == sample.sha256
    assert len(data) < 2_000_000
    assert sample.source and sample.licence


def test_every_file_in_the_folder_is_a_sample():
    files = {
        path.name for path in samples.FOLDER.iterdir() if path.is_file() and path.suffix != ".py"
    }
    assert files == {sample.file for sample in SAMPLES}


def test_digits():
    images, labels = samples.digits()
    assert (images.shape, images.dtype, labels.shape, labels.dtype) == (
        (1797, 8, 8),
        np.float32,
        (1797,),
        np.int64,
    )
    assert images.flags.c_contiguous and (images.min(), images.max()) == (0, 16)
    assert labels[:10].tolist() == list(range(10))
    assert np.bincount(labels).tolist() == [
        178,
        182,
        177,
        183,
        181,
        182,
        181,
        179,
        174,
        180,
    ]  # UCI's table of the test set
    images[0] = labels[0] = 5  # the arrays are the caller's own
    assert samples.digits()[0][0].max() > 5 and samples.digits()[1][0] == 0


def test_photograph():
    photograph = samples.photograph()
    assert (photograph.shape, photograph.dtype) == ((256, 256), np.float32)
    assert 0 <= photograph.min() < 0.05 and 0.95 < photograph.max() <= 1


def test_novel():
    novel = samples.novel()
    assert len(novel) == 684_768 and novel.isascii()
    assert novel.startswith("PRIDE AND PREJUDICE\n") and novel.count("Mr. Darcy") > 200


def test_a_damaged_sample_is_refused_with_the_line_that_fixes_it(tmp_path):
    (tmp_path / samples.DIGITS.file).write_bytes(b"not the digits")
    with pytest.raises(
        ValueError, match=r"digits\.csv\.gz .*14 bytes.*git checkout common/samples"
    ):
        samples._read(samples.DIGITS, tmp_path)


def test_published_runs():
    record = samples.published_runs()
    rows = record["rows"]
    measured = [row for row in rows if row["status"] == "ok"]
    assert (len(rows), len(measured)) == (1131, 627)
    counts = {name: source["rows"] for name, source in record["sources"].items()}
    assert counts == dict(collections.Counter(row["source"] for row in rows))
    assert len({row["id"] for row in rows}) == len(rows)
    assert {row["tier"] for row in rows} == set("ABC")
    assert all(
        row["where"] and source["url"] for row in rows for source in record["sources"].values()
    )
    assert record["failures"]["llama3"]["interruptions_total"] == 466
    assert set(record["diloco"]) == {"diloco2023", "scaling_laws2025", "streaming2025"}
