"""benchmarks/sweeps.py without a GPU: its shapes, and what it says about what was measured."""

from benchmarks import sweeps


def test_the_shapes_are_as_many_and_as_odd_as_it_says():
    shapes, widths = sweeps.matmul_shapes(), sweeps.softmax_widths()
    assert len(shapes) == 200 and len(widths) == 100
    assert all(16 <= size <= 16384 for shape in shapes for size in shape)
    odd = [shape for shape in shapes if all(size % 2 for size in shape)]
    assert len(odd) == 50
    assert all(size % 8 == 0 for shape in shapes if shape not in odd for size in shape)
    assert {name for name, _ in widths} == set(sweeps.DTYPES)
    assert all(16 <= width <= 262_144 for _, width in widths)
    assert 40 < sum(width % 8 == 0 for _, width in widths) < 60


def test_products_in_fp32_and_int4():
    shapes = sweeps.fp32_shapes()
    assert len(shapes) == 20 and all(1000 <= size <= 8192 for shape in shapes for size in shape)
    layers = sweeps.int4_shapes()
    assert len(set(layers)) == len(layers) == 30
    assert all(4096 <= size <= 28_672 and size % 128 == 0 for layer in layers for size in layer)


def test_each_kernel_has_a_panel(tmp_path):
    def row(kind, shape, peer, **more):
        return {"kind": kind, "shape": shape, "times_s": {"ours": 2e-6, peer: 3e-6}, **more}

    rows = [
        row("matmul", (32, 64, 16), "cuBLAS"),
        row("softmax", ("bf16", 100), "copy", aligned=False),
        row("fp32", (1000, 2000, 3000), "cuBLAS"),
        row("int4", (4096, 8192), "cuBLAS bf16"),
        {"kind": "int4", "shape": (8192, 8192), "failed": "wrong"},
    ]
    sweeps.draw(rows, tmp_path / "sweeps.png")
    assert (tmp_path / "sweeps.png").read_bytes()[:4] == b"\x89PNG"
    lines = sweeps.summary(rows)
    for line in (
        "| fp32 matmul | cuBLAS | 1 | 1.500 | 100% | 1.50 | 1000 × 2000 × 3000 |",
        "| int4 matrix-vector | cuBLAS bf16 | 1 | 1.500 | 100% | 1.50 | 4096 × 8192 |",
        "- int4 8192 × 8192: wrong",
    ):
        assert line in lines


def test_the_summary_has_a_line_per_peer_and_says_what_failed():
    rows = [
        {"kind": "matmul", "shape": (32, 64, 16), "times_s": {"ours": 2e-6, "cuBLAS": 2e-6}},
        {"kind": "matmul", "shape": (33, 65, 17), "times_s": {"ours": 4e-6, "cuBLAS": 1e-6}},
        {"kind": "softmax", "shape": ("bf16", 100), "aligned": False, "failed": "no memory"},
        {
            "kind": "softmax",
            "shape": ("fp32", 1000),
            "aligned": True,
            "times_s": {"ours": 1e-3, "torch.softmax": 2e-3, "copy": 9e-4},
        },
    ]
    lines = sweeps.summary(rows).splitlines()
    assert lines[2:] == [
        "| bf16 matmul | cuBLAS | 2 | 0.500 | 50% | 0.25 | 33 × 65 × 17 |",
        "| bf16 matmul, odd sizes | cuBLAS | 1 | 0.250 | 0% | 0.25 | 33 × 65 × 17 |",
        "| softmax, aligned rows | torch.softmax | 1 | 2.000 | 100% | 2.00 | fp32, rows of 1,000 |",
        "| softmax, aligned rows | copy | 1 | 0.900 | 100% | 0.90 | fp32, rows of 1,000 |",
        "",
        "What failed:",
        "",
        "- softmax bf16, rows of 100: no memory",
    ]
    assert "torch.softmax 2.00, copy 0.90" in sweeps.table(rows).splitlines()[-1]
    assert sweeps.shown(rows[2]) == "softmax bf16, rows of 100 no memory"
