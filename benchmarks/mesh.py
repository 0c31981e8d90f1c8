"""Lab 16's last part on several GPUs: steps of a model on meshes, measured and predicted.

    python benchmarks/mesh.py
    python benchmarks/mesh.py --gloo

The model is the course's, wider (8 layers of width 2,048, texts of 1,024 characters), so that
multiplying and not launching takes the time. The pieces are the solutions' own. The prediction
knows three numbers: the time of a step without its messages, the latency of a message and the
bandwidth of messages as long as the step's. They are measured in turns with the steps, and the
turn counts whose step over prediction is the middle one of all turns.
--gloo trains the course's own size on two processes: a trial of this program, and a measurement
where two cores are idle. The last line is JSON: {mesh: [predicted s, measured s]}.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from benchmarks.solved import solved
from common.hardware import device
from common.language_model import CONFIG, Config
from common.lessons.scaling import earlier_pieces, mesh_training

WIDE = Config(context=1024, width=2048, layers=8, heads=16, hidden=8192)
STEPS = 16


def main() -> None:
    """Prints a line per mesh, and all as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--gloo", action="store_true")
    gpus = torch.cuda.device_count()
    is_trial = parser.parse_args().gloo
    if gpus < 2 and not is_trial:
        sys.exit(f"there are {gpus} GPUs; two are needed (or --gloo)")
    use = {
        name: piece
        for own in earlier_pieces.of_the_course().values()
        for name, piece in own.items()
    }
    update = solved("16")["mesh_update"]
    del use["ring_all_reduce"]  # NCCL's own
    machine: Any = "gloo" if is_trial else "nccl"
    config, length, rows = (CONFIG, mesh_training.LENGTH, 8) if is_trial else (WIDE, 1024, 16)
    sizes = {"rows": rows, "microbatches": 4, "config": config, "length": length}
    options = {**sizes, "machine": machine, "steps": STEPS, "noted": False}
    print(device.describe())
    found = {}
    for mesh in meshes(2 if is_trial else min(gpus, 8)):
        known, measured_s = mesh_training.in_turns(use, update, mesh, **options)
        message = f"message {known.alpha_s * 1e6:.0f} µs, {known.bytes_per_s / 1e9:.1f} GB/s"
        print(f"{mesh}: computing {known.compute_s:.4f} s, {message}")
        parts = mesh_training.predicted_s(mesh, known, **sizes)
        predicted_s = sum(parts.values())
        found[str(mesh)] = [predicted_s, measured_s]
        detail = ", ".join(f"{name} {part:.4f}" for name, part in parts.items())
        print(f"{mesh}: predicted {predicted_s:.4f} s ({detail})")
        print(f"{mesh}: measured {measured_s:.4f} s, {measured_s / predicted_s - 1:+.1%}")
    print(json.dumps(found))


def meshes(world_size: int) -> list[mesh_training.Mesh]:
    """All meshes of so many ranks, of powers of two."""
    powers = [1, 2, 4, 8]
    found = (mesh_training.Mesh(d, p, t) for d in powers for p in powers for t in powers)
    return [mesh for mesh in found if mesh.size == world_size]


if __name__ == "__main__":
    main()
