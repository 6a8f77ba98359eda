"""Killing a server that works, and finding out what it still knows. `scripts/kill_cycles` is the command.

    clients   what runs against the server, and notes what it sent and what was answered
    ledger    those notes for transfers of money, and the judgement on what a restarted server has
    tables    the same for tables and indexes that come and go
    server    a server process that is started, killed and stopped
    cycles    the plan: when to kill, what to check, what to count
    disk      a full disk, and a directory that cannot be written
"""
