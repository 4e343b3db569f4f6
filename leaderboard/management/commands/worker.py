"""`manage.py worker --queue gpu --device cuda:3`: one Celery worker, on a device of its own if it is given one."""

import os
import re
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from evaluation.efficiency.hardware import visible_gpus
from leaderboard.management.supervisor import services

_DEVICE = re.compile(r"(cpu|cuda):(\d{1,3})")


class Command(BaseCommand):
    """Becomes the worker: what ends this process ends that."""

    help = "Start one worker. Any number of them, on any number of machines, serve one site."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queue", choices=services.WORKER_KINDS, required=True)
        parser.add_argument(
            "--device",
            help="cuda:3: the fourth GPU of those that this process may see; a worker for each. cpu:0 and so on name "
            "several workers of one processor",
        )
        parser.add_argument(
            "--until-idle",
            type=float,
            metavar="SECONDS",
            help="end after so long without work; never by default",
        )
        parser.add_argument("--processes", type=int, help="how many jobs it does at a time; one for models")

    def handle(self, *args: Any, **options: Any) -> None:
        queue, device, idle = options["queue"], options["device"], options["until_idle"]
        if idle is not None and idle < 1:
            raise CommandError(f"--until-idle {idle:g} is no time; give at least one second.")
        environment = {"WORKER_UNTIL_IDLE": str(idle)} if idle is not None else {}
        if device is not None:
            environment |= _device_environment(device, queue)
        name = f"{queue}-{device.replace(':', '-')}" if device else queue
        command = services.worker_for(queue, f"{name}-{os.getpid()}", environment, options["processes"])
        os.execvpe(command.arguments[0], list(command.arguments), {**os.environ, **command.environment})  # noqa: S606


def _device_environment(device: str, queue: str) -> dict[str, str]:
    """Return the variables with which a worker and its children see one GPU only."""
    found = _DEVICE.fullmatch(device)
    if found is None or (found[1] == "cuda") != (queue == "gpu"):
        right = "cuda:N for --queue gpu, cpu:N for the others"
        raise CommandError(f"--device {device} does not fit --queue {queue}; give {right}.")
    if found[1] == "cpu":
        return {}
    visible, number = visible_gpus(), int(found[2])
    if visible and number >= len(visible):
        there = ", ".join(f"cuda:{place}" for place in range(len(visible)))
        raise CommandError(
            f"There is no {device} here, but {there}. CUDA_VISIBLE_DEVICES names what it may see."
        )
    gpu = visible[number] if visible else found[2]  # where the driver tells of none, CUDA may still find some
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu}
