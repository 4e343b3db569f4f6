"""No sandbox: the same program with limits, as a child of ours. For tests, and for staff on their own machine."""

from __future__ import annotations

import os
import subprocess

from submissions.sandbox.backends import Backend, Contained, Program, greet, launched
from submissions.sandbox.watching import threads_of_user


class Plain(Backend):
    """Limits alone: the program sees the files and the network that we see."""

    name = "none"
    isolates = False
    moves_paths = False
    remedy = ""

    def probe(self) -> str:
        return ""

    def start(self, program: Program) -> Contained:
        command = launched(
            program,
            user=None,
            address_space=not program.cuda,
            processes=threads_of_user(os.geteuid()) + program.limits.most_processes,
        )
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(program.environment),
            start_new_session=True,
        )
        contained = Contained(process)
        try:
            greet(process)
        except BaseException:
            contained.kill()
            contained.close()
            raise
        return contained
