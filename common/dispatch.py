"""PyTorch's way to see each operation that it executes, at a start without its compiler."""

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """A TorchDispatchMode to derive from, for which PyTorch does not import its compiler."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
