"""Small real data that comes with the course: digits, a photograph, a novel, and more.

Nothing is downloaded. A damaged or changed file is refused, because every number that a lab quotes
belongs to exactly this data.
"""

import gzip
import hashlib
import io
import json
import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Sample:
    """A file of this folder: where it is from, its licence, and its hash."""

    file: str
    source: str
    licence: str
    sha256: str


DIGITS = Sample(
    "digits.csv.gz",
    "E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits (1998), the test set; "
    "UCI Machine Learning Repository, https://doi.org/10.24432/C50P49; "
    "this file: sklearn/datasets/data/digits.csv.gz of scikit-learn 1.9.1",
    "CC BY 4.0",
    "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22",
)

PHOTOGRAPH = Sample(
    "camera.png",
    "Lav Varshney, the image `camera` of scikit-image 0.26.0 (skimage/data/camera.png), "
    "each 2×2 pixels averaged",
    "CC0",
    "60f5b56f4528d9853efe8ee4dc42ef32f48463e656fd3b8bb7f902a9a60c1fce",
)

NOVEL = Sample(
    "pride_and_prejudice.txt.xz",
    "Jane Austen, Pride and Prejudice (1813); the lines of Project Gutenberg's text "
    "in the R package janeaustenr 1.0.0 (cran.r-project.org/package=janeaustenr)",
    "public domain; the collection is MIT, © 2016-2017 Julia Silge",
    "b1bb98fb36a1bdf4086d4a5aab7822017a9be9b63a761264ea99ec746fd98ab2",
)

MATMULS = Sample(
    "matmul_configurations.json",
    "measured on an NVIDIA H200 by benchmarks/matmul_configurations.py of this repository",
    "MIT, as the course",
    "09fbc41e7cefa234a3ac5f57ea8ae14c1b78c0e455650559a5f90cd3ea9a000a",
)

LANGUAGE_MODEL = Sample(
    "language_model.npz",
    "trained by benchmarks/train_language_model.py of this repository on NOVEL, without its last "
    "tenth; 16-bit floats",
    "MIT, as the course",
    "a3354f38195abb374f5cb4822aa6dbea060138ebd21e11abcfb7e8314b572514",
)

PUBLISHED_RUNS = Sample(
    "published_runs.json.xz",
    "1,131 training runs from 21 tables and logs, with tables of failures and of DiLoCo; each row "
    "names its table, its file and commit, or its paper",
    "facts, copied from the sources that the rows name; the collection is MIT, as the course",
    "64dc910668105d55ea5dbac0f2f0d5427911f5a124da8cd9d994bb688a910cf4",
)


COMPILED = Sample(
    "compiled.json",
    "what jax 0.10.2 (XLA), apache-tvm 0.27.0.post1 and torch 2.13.0 (Inductor) printed for one "
    "function on a CPU; the file says by which calls",
    "Apache 2.0 and BSD, as the compilers",
    "e4075c64b7e24a8d0e98c97768872490c45797eaa62f946b26c441ab79158e00",
)


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images (1797, 8, 8) float32, ink from 0 to 16, and labels (1797,) int64, from 0 to 9."""
    lines = gzip.decompress(_read(DIGITS)).decode("ascii").splitlines()
    table = np.loadtxt(lines, delimiter=",", dtype=np.int64)  # 64 pixels and the label in each line
    return table[:, :64].reshape(-1, 8, 8).astype(np.float32), table[:, 64].copy()


def photograph() -> np.ndarray:
    """A photograph, (256, 256) float32, brightness from 0 (black) to 1 (white)."""
    import matplotlib.image

    return matplotlib.image.imread(io.BytesIO(_read(PHOTOGRAPH)), format="png")


def novel() -> str:
    """The text of Pride and Prejudice: 684,768 ASCII characters."""
    return lzma.decompress(_read(NOVEL)).decode("ascii")


def matmul_configurations() -> dict[str, Any]:
    """Times of lab 05's kernel on an H200, bf16: {"device", "date", "cublas_us", "rows", ...}.

    cublas_us: {(M, N, K): microseconds}. turns: {(M, N, K): [microseconds]}, our best and cuBLAS in
    turns, on random data and then on zeros. rows: dicts with M, N, K, with the configuration
    (BLOCK_M, BLOCK_N, BLOCK_K, GROUP, num_warps, num_stages), and with time_us, registers,
    spills, shared_bytes and compile_s, which are None if the GPU refused the configuration.
    """
    record = json.loads(_read(MATMULS))
    record["cublas_us"] = {tuple(shape): time_us for *shape, time_us in record["cublas_us"]}
    record["turns"] = {tuple(row[:3]): row[3:] for row in record.get("turns", [])}
    record["rows"] = [dict(zip(record["columns"], row, strict=True)) for row in record["rows"]]
    return record


def language_model() -> dict[str, np.ndarray]:
    """{name: float16 array}: the weights of the course's language model, trained."""
    with np.load(io.BytesIO(_read(LANGUAGE_MODEL))) as arrays:
        return dict(arrays)


def published_runs() -> dict[str, Any]:
    """Training runs that others published: {"rows", "sources", "failures", "diloco", ...}.

    rows: dicts with source, where, model, hardware, parallel, batch, precision, recompute, schedule
    and what was measured. None is what the source does not state; fields_assumed and fields_derived
    name what it does not state, and we filled in. tier: "A" has everything that a prediction needs,
    "B" lacks something, "C" is not a dense model on a GPU that we have a data sheet of. sources:
    {source: {"figures_are": which FLOPs its figures count, "url", "rows"}}.
    """
    return json.loads(lzma.decompress(_read(PUBLISHED_RUNS)))


def _read(sample: Sample, folder: Path = FOLDER) -> bytes:
    """The bytes of a sample's file; ValueError unless they have the sample's hash."""
    data = (folder / sample.file).read_bytes()
    if hashlib.sha256(data).hexdigest() != sample.sha256:
        raise ValueError(
            f"{folder / sample.file} ({len(data):,} bytes) is not the file that came with the "
            "course: restore it with `git checkout common/samples`"
        )
    return data


def compiled() -> dict[str, Any]:
    """One function, and what compilers emit for it: {compiler: {version, what, text}}."""
    return json.loads(_read(COMPILED))
