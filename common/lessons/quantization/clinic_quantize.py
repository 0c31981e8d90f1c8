"""Programs for a test of lab 10's quantize_groups: symmetric codes, a scale per group of a row."""

import torch
import torch.nn.functional as F

Coded = tuple[torch.Tensor, torch.Tensor]


def right_padded(weight: torch.Tensor, bits: int, group: int) -> Coded:
    rows, columns = weight.shape
    padded = F.pad(weight, (0, -columns % group)).view(rows, -1, group)
    scales = padded.abs().amax(2) / (2 ** (bits - 1) - 1)
    scales = torch.where(scales > 0, scales, 1.0)
    codes = torch.round(padded / scales[:, :, None]).to(torch.int8)
    return codes.view(rows, -1)[:, :columns], scales


def right_by_pieces_and_ties_go_up(weight: torch.Tensor, bits: int, group: int) -> Coded:
    most = 2 ** (bits - 1) - 1
    codes, scales = [], []
    for piece in weight.split(group, dim=1):
        scale = piece.abs().max(dim=1, keepdim=True).values * (1 / most)
        scale = torch.where(scale == 0, torch.ones_like(scale), scale)
        codes.append(torch.floor(piece / scale + 0.5).clamp(-most, most).to(torch.int8))
        scales.append(scale)
    return torch.cat(codes, 1), torch.cat(scales, 1)


def right_in_float64(weight: torch.Tensor, bits: int, group: int) -> Coded:
    most, (rows, columns) = 2 ** (bits - 1) - 1, weight.shape
    codes = torch.zeros(rows, columns, dtype=torch.int8)
    scales = torch.ones(rows, (columns + group - 1) // group)
    for g in range(scales.shape[1]):
        piece = weight[:, g * group : (g + 1) * group].double()
        top = piece.abs().amax(1) / most
        top[top == 0] = 1
        codes[:, g * group : (g + 1) * group] = torch.round(piece / top[:, None]).to(torch.int8)
        scales[:, g] = top.float()
    return codes, scales


def wrong_runs_on(weight: torch.Tensor, bits: int, group: int) -> Coded:
    """A group runs on into the next row."""
    rows, columns = weight.shape
    pieces = -(-columns // group)
    flat = F.pad(weight.flatten(), (0, rows * pieces * group - weight.numel())).view(-1, group)
    scales = flat.abs().amax(1) / (2 ** (bits - 1) - 1)
    scales = torch.where(scales > 0, scales, 1.0)
    codes = torch.round(flat / scales[:, None]).to(torch.int8).flatten()[: weight.numel()]
    return codes.view(rows, columns), scales.view(rows, pieces)


def wrong_one_scale_per_row(weight: torch.Tensor, bits: int, group: int) -> Coded:
    """All groups of a row have the row's scale."""
    pieces = -(-weight.shape[1] // group)
    scale = weight.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
    scale = torch.where(scale > 0, scale, 1.0)
    return torch.round(weight / scale).to(torch.int8), scale.repeat(1, pieces)


def wrong_zero_groups(weight: torch.Tensor, bits: int, group: int) -> Coded:
    """The scale of a group of zeros is 0, not 1."""
    rows, columns = weight.shape
    padded = F.pad(weight, (0, -columns % group)).view(rows, -1, group)
    scales = padded.abs().amax(2) / (2 ** (bits - 1) - 1)
    codes = torch.round(padded / torch.where(scales > 0, scales, 1.0)[:, :, None]).to(torch.int8)
    return codes.view(rows, -1)[:, :columns], scales


def wrong_largest_not_magnitude(weight: torch.Tensor, bits: int, group: int) -> Coded:
    """A group whose largest magnitude is below 0 gets too small a scale."""
    rows, columns = weight.shape
    padded = F.pad(weight, (0, -columns % group)).view(rows, -1, group)
    most = 2 ** (bits - 1) - 1
    scales = padded.amax(2) / most
    scales = torch.where(scales > 0, scales, 1.0)
    codes = torch.round(padded / scales[:, :, None]).clamp(-most, most).to(torch.int8)
    return codes.view(rows, -1)[:, :columns], scales


def wrong_cut_off(weight: torch.Tensor, bits: int, group: int) -> Coded:
    """Codes are cut off toward 0, not rounded."""
    rows, columns = weight.shape
    padded = F.pad(weight, (0, -columns % group)).view(rows, -1, group)
    scales = padded.abs().amax(2) / (2 ** (bits - 1) - 1)
    scales = torch.where(scales > 0, scales, 1.0)
    codes = (padded / scales[:, :, None]).to(torch.int8)
    return codes.view(rows, -1)[:, :columns], scales


def wrong_rounds_down(weight: torch.Tensor, bits: int, group: int) -> Coded:
    """Codes are rounded down, not to the nearest."""
    rows, columns = weight.shape
    padded = F.pad(weight, (0, -columns % group)).view(rows, -1, group)
    scales = padded.abs().amax(2) / (2 ** (bits - 1) - 1)
    scales = torch.where(scales > 0, scales, 1.0)
    codes = torch.floor(padded / scales[:, :, None] + 1e-4).to(torch.int8)
    return codes.view(rows, -1)[:, :columns], scales


def wrong_last_code(weight: torch.Tensor, bits: int, group: int) -> Coded:
    """Scales use the code -2**(bits - 1), for which there is no positive partner."""
    rows, columns = weight.shape
    padded = F.pad(weight, (0, -columns % group)).view(rows, -1, group)
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    scales = padded.abs().amax(2) / -least
    scales = torch.where(scales > 0, scales, 1.0)
    codes = torch.round(padded / scales[:, :, None]).clamp(least, most).to(torch.int8)
    return codes.view(rows, -1)[:, :columns], scales


def wrong_least_scale(weight: torch.Tensor, bits: int, group: int) -> Coded:
    """Scales below a thousandth become a thousandth, so that small weights become 0."""
    rows, columns = weight.shape
    padded = F.pad(weight, (0, -columns % group)).view(rows, -1, group)
    scales = padded.abs().amax(2) / (2 ** (bits - 1) - 1)
    scales = torch.where(scales > 0, scales.clamp(min=1e-3), 1.0)
    codes = torch.round(padded / scales[:, :, None]).to(torch.int8)
    return codes.view(rows, -1)[:, :columns], scales


def wrong_short_group(weight: torch.Tensor, bits: int, group: int) -> Coded:
    """The last, shorter group has no scale of its own: it takes the one before it."""
    rows, columns = weight.shape
    most, whole = 2 ** (bits - 1) - 1, columns // group
    if whole == 0:
        whole, group = 1, columns
    scales = weight[:, : whole * group].reshape(rows, whole, group).abs().amax(2) / most
    scales = torch.where(scales > 0, scales, 1.0)
    if columns % group:
        scales = torch.cat([scales, scales[:, -1:]], 1)
    steps = scales.repeat_interleave(group, 1)[:, :columns]
    return torch.round(weight / steps).clamp(-most, most).to(torch.int8), scales


def wrong_eight_bits(weight: torch.Tensor, bits: int, group: int) -> Coded:
    """The largest code is always 127, however few bits there are."""
    rows, columns = weight.shape
    padded = F.pad(weight, (0, -columns % group)).view(rows, -1, group)
    scales = padded.abs().amax(2) / 127
    scales = torch.where(scales > 0, scales, 1.0)
    codes = torch.round(padded / scales[:, :, None]).to(torch.int8)
    return codes.view(rows, -1)[:, :columns], scales


def wrong_in_place(weight: torch.Tensor, bits: int, group: int) -> Coded:
    """The weights themselves are divided by their scales: the caller's matrix is gone."""
    rows, columns = weight.shape
    codes, scales = torch.zeros(rows, columns, dtype=torch.int8), []
    for first in range(0, columns, group):
        piece = weight[:, first : first + group]
        scale = piece.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
        scale = torch.where(scale > 0, scale, 1.0)
        piece /= scale
        codes[:, first : first + group] = torch.round(piece).to(torch.int8)
        scales.append(scale)
    return codes, torch.cat(scales, 1)


def wrong_half_precision(weight: torch.Tensor, bits: int, group: int) -> Coded:
    """Scales are rounded to fp16: tiny ones become 0 or lose digits, large ones infinite."""
    rows, columns = weight.shape
    padded = F.pad(weight, (0, -columns % group)).view(rows, -1, group)
    scales = (padded.abs().amax(2) / (2 ** (bits - 1) - 1)).half().float()
    scales = torch.where(scales > 0, scales, 1.0)
    codes = torch.round(padded / scales[:, :, None]).to(torch.int8)
    return codes.view(rows, -1)[:, :columns], scales


def wrong_columns(weight: torch.Tensor, bits: int, group: int) -> Coded:
    """Groups run down the columns, not along the rows."""
    rows, columns = weight.shape
    turned = F.pad(weight.T, (0, -rows % group)).view(columns, -1, group)
    scales = turned.abs().amax(2) / (2 ** (bits - 1) - 1)
    scales = torch.where(scales > 0, scales, 1.0)
    codes = torch.round(turned / scales[:, :, None]).to(torch.int8)
    return codes.view(columns, -1)[:, :rows].T.contiguous(), scales.T.contiguous()


def wrong_type(weight: torch.Tensor, bits: int, group: int) -> Coded:
    """Codes are float32 numbers, not int8: four times the bytes."""
    rows, columns = weight.shape
    padded = F.pad(weight, (0, -columns % group)).view(rows, -1, group)
    scales = padded.abs().amax(2) / (2 ** (bits - 1) - 1)
    scales = torch.where(scales > 0, scales, 1.0)
    return torch.round(padded / scales[:, :, None]).view(rows, -1)[:, :columns], scales
