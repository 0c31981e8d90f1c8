"""PyTorch's way to see each operation that it executes, at a start without its compiler."""

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """While it is open, `executed` is called after each operation that PyTorch executes.

    To derive from. PyTorch does not import its compiler for it.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.executed(func, args, kwargs or {}, result)
        return result

    def executed(self, func: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> None:
        """After func(*args, **kwargs), which gave this result."""
        raise NotImplementedError
