"""A process to be killed: python under_load.py FOLDER KILLS SEED forks children that work on FOLDER/state.db, kills each with
SIGKILL at a random instant, and has everything that was acknowledged written to FOLDER/acknowledged, a line at a time."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

from queuewise.live.errors import Refused
from queuewise.live.scheduler import Scheduler


def opened(path: Path | None) -> Scheduler:
    return Scheduler({"a": 3, "b": 3}, job_features=2, policy="cqb_opt", path=path, lease=0.05, snapshot_every=40)


def work(folder: Path, child: int, seed: int) -> None:
    """Three kinds of threads; never returns by itself."""
    log = os.open(folder / "acknowledged", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def acknowledged(what: str, **fields) -> None:
        os.write(log, (json.dumps({"what": what, **fields}) + "\n").encode())

    scheduler = opened(folder / "state.db")
    if scheduler.diverged:
        os._exit(3)
    acknowledged("open")

    def submit(thread: int) -> None:
        rng = np.random.default_rng((seed, child, thread))
        count = 0
        while True:
            name = f"{child}-{thread}-{count}"
            count += 1
            scheduler.submit(name, rng.uniform(-0.5, 0.5, 2))
            acknowledged("submit", job=name)
            time.sleep(0.002)

    def serve(thread: int, server: str | None) -> None:
        rng = np.random.default_rng((seed, child, thread))
        while True:
            assignment = scheduler.next(server)
            if assignment is None:
                time.sleep(0.001)
                continue
            acknowledged("next", attempt=assignment.number, job=assignment.job_id)
            kind = rng.random()
            if kind < 0.1:
                continue  # never heard of again
            if kind < 0.2:
                time.sleep(0.07)  # late
            success = bool(rng.random() < 0.7)
            receipt = scheduler.report(assignment, success)
            acknowledged(
                "report", attempt=assignment.number, job=receipt.job_id, success=success, status=receipt.status,
                job_status=receipt.job_status,
            )  # fmt: skip
            try:
                scheduler.report(assignment, not success)
                os._exit(4)
            except Refused:
                pass

    def watched(target, *arguments) -> None:
        try:
            target(*arguments)
        except BaseException as error:
            print(type(error).__name__, error, file=sys.stderr, flush=True)
            os._exit(5)

    for index in range(2):
        threading.Thread(target=watched, args=(submit, index), daemon=True).start()
    for index, server in enumerate((None, "a", "b")):
        threading.Thread(target=watched, args=(serve, 10 + index, server), daemon=True).start()
    time.sleep(60)
    os._exit(6)


def main(folder: Path, kills: int, seed: int) -> None:
    """Fork and kill; exits with 1 if a child ended by itself."""
    opened(None).close()  # compiled once, here
    rng = np.random.default_rng(seed)
    for child in range(kills):
        process = os.fork()
        if process == 0:
            try:
                work(folder, child, seed)
            finally:
                os._exit(7)
        time.sleep(float(rng.uniform(0.03, 0.25)))
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        if not os.WIFSIGNALED(status):
            sys.exit(f"child {child} ended by itself with {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
