"""`manage.py worker --queue gpu --device cuda:3`: run one Celery worker, optionally on a single device."""

import os
import re
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from evaluation.efficiency.hardware import visible_gpus
from leaderboard.management.supervisor import services

_DEVICE = re.compile(r"(cpu|cuda):(\d{1,3})")


class Command(BaseCommand):
    """Command that replaces its process by the worker, so that signals reach the worker."""

    help = "Start one worker. A site can have any number of workers, on any number of machines."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queue", choices=services.WORKER_KINDS, required=True)
        parser.add_argument(
            "--device",
            help="cuda:3 for the fourth visible GPU (start one worker per GPU); cpu:0, cpu:1 and so on to distinguish "
            "several workers on the CPU",
        )
        parser.add_argument(
            "--until-idle",
            type=float,
            metavar="SECONDS",
            help="exit after this time without work (default: never)",
        )
        parser.add_argument("--processes", type=int, help="number of simultaneous jobs; use 1 for models")

    def handle(self, *args: Any, **options: Any) -> None:
        """Replace this process by a Celery worker of the queue. Raises CommandError for an invalid option."""
        queue, device, idle = options["queue"], options["device"], options["until_idle"]
        if idle is not None and idle < 1:
            raise CommandError(f"--until-idle {idle:g} is too short. Give at least one second.")
        environment = {"WORKER_UNTIL_IDLE": str(idle)} if idle is not None else {}
        if device is not None:
            environment |= _device_environment(device, queue)
        name = f"{queue}-{device.replace(':', '-')}" if device else queue
        command = services.queue_worker(queue, f"{name}-{os.getpid()}", environment, options["processes"])
        os.execvpe(command.arguments[0], list(command.arguments), {**os.environ, **command.environment})  # noqa: S606


def _device_environment(device: str, queue: str) -> dict[str, str]:
    """Return the environment variables that restrict a worker and its children to one GPU; none for CPUs.

    Raises CommandError if the device does not match the queue or does not exist.
    """
    match = _DEVICE.fullmatch(device)
    if match is None or (match[1] == "cuda") != (queue == "gpu"):
        valid_devices = "cuda:N for --queue gpu, cpu:N for the others"
        raise CommandError(f"--device {device} does not match --queue {queue}. Give {valid_devices}.")
    if match[1] == "cpu":
        return {}
    gpus, number = visible_gpus(), int(match[2])
    if gpus and number >= len(gpus):
        available_devices = ", ".join(f"cuda:{place}" for place in range(len(gpus)))
        raise CommandError(
            f"{device} does not exist. Choose from {available_devices}; CUDA_VISIBLE_DEVICES restricts the list."
        )
    gpu = gpus[number] if gpus else match[2]  # CUDA may find GPUs that the driver does not list.
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu}
