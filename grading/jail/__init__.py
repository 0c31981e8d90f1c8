"""Security code: choice, confinement, cgroups, syscalls, escape."""
