"""The student's side of the connection: wire, process, client, session, remote, counting, ranks, replay."""
