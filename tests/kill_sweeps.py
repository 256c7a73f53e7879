"""Interrupt sweeps at random moments, and compare all that they store with an uninterrupted run,
bit by bit.

    python -m tests.kill_sweeps --kills 1000

Every sweep runs in processes of its own, on one store, which is continued after each interruption
until it is finished:

* one process with two workers, which gets SIGKILL, SIGTERM, or SIGINT (Ctrl-C);
* one process, or two with a shard each, that run a coarse grid with few trials first, then with
  more, then the whole;
* two processes that run the two shards of a sweep at the same time, one of which or both get
  SIGKILL;
* a Dask cluster of two processes, one of which gets SIGKILL;
* one process whose disk is full: a tmpfs of its own, where Linux lets users mount one, else a limit
  on the size of files.

What is counted: *lost*, cells whose trials a process has reported as stored, or that were found in
the store, and are no longer there; *wrong*, records that differ in a bit; *twice*, cells whose
trials are computed although they are stored (not of two processes whose grids grow: each may be at
another one); *hung*, processes that are there a minute after they should have ended; *errors*,
processes that end otherwise than they should.
"""

import argparse
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import xarray

import jaxht
from jaxht import sweep
from jaxht.sweep import store as store_module

MOMENTS = ["start", "compile", "run", "write"]
FAULTS = ["lost", "wrong", "twice", "hung", "errors"]
# Of the kills: by signal or scenario.
SHARES = {
    "Dask with 2 workers, SIGKILL": 0.03,
    "disk full": 0.12,
    "2 shards at the same time, SIGKILL": 0.2,
    "2 shards growing, SIGKILL": 0.1,
    "2 workers growing, SIGKILL": 0.1,
    "2 workers, Ctrl-C": 0.2,
    "2 workers, SIGTERM": 0.1,
    "2 workers, SIGKILL": 0.35,
}
SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "Ctrl-C": signal.SIGINT}
INTERRUPTED, FULL = 130, 3  # exit codes
PATIENCE = 60.0  # seconds until a process counts as hung
PAGE = 4096
WRITE = store_module.Store.write
CHILDREN = []


# ---- the sweep -----------------------------------------------------------------------------------


class Descent:
    """Gradient descent with momentum on small least-squares problems, which share A in a cell."""

    def draw(self, key, cell):
        A, y = jax.random.normal(cell.key, (6, 8)), jax.random.normal(key, (6,))
        return A, y, 0.001 * cell["rate"], cell["momentum"], 200 + 50 * cell["length"]

    def start(self, case):
        return jnp.zeros(8), jnp.zeros(8), jnp.zeros((), jnp.int32)

    def running(self, carry):
        return carry[2] >= 0

    def advance(self, case, carry):
        (A, y, rate, momentum, length), (x, move, steps) = case, carry
        move = momentum * move - rate * (A.T @ (A @ x - y))
        stepped = x + move, move, jnp.where(steps + 1 >= length, -steps - 1, steps + 1)
        return jax.tree.map(lambda old, new: jnp.where(steps < 0, old, new), carry, stepped)

    def finish(self, case, carry):
        return {"first": carry[0][0], "norm": jnp.linalg.norm(carry[0]), "steps": -carry[2]}


AXES = {"momentum": [0.0, 0.5], "rate": [5.0, 10.0, 20.0], "length": list(range(10))}


NUM_TRIALS = 40
# Sweeps that become the whole one: other values of an axis, more trials, both.
GROWTH = [
    ({**AXES, "length": [0, 4, 9]}, 7),
    ({**AXES, "length": [9, 2, 4], "rate": [20.0, 5.0]}, 25),
]


def run(path, growing=False, **options):
    for axes, num_trials in [*(GROWTH if growing else []), (AXES, NUM_TRIALS)]:
        sweep.run(
            Descent(), axes, num_trials=num_trials, seed=3, max_lanes=16, store=path, **options
        )


# ---- what processes report -----------------------------------------------------------------------


def observe(log):
    """Have this process append what it does to a file, a line each, which outlives it; returns
    ``on_progress``."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(*words):
        os.write(descriptor, f"{os.getpid()} {' '.join(map(str, words))}\n".encode())

    def write_and_note(store, cell, trials, results):
        words = store_module.record_path(cell.coordinates).stem, trials[0], trials[-1] + 1
        note("writing", *words)
        WRITE(store, cell, trials, results)
        note("wrote", *words)

    store_module.Store.write = write_and_note
    note("start")
    return lambda progress: note("compile" if progress.note else "run")


class Log:
    """What processes have reported so far."""

    def __init__(self, path):
        self.path, self.position, self.rest = path, 0, b""
        path.touch()
        self.moments, self.writing = {}, defaultdict(set)
        self.stored, self.twice = Counter(), 0  # numbers of trials by record

    def read(self):
        with open(self.path, "rb") as file:
            file.seek(self.position)
            content = self.rest + file.read()
            self.position = file.tell()
        *lines, self.rest = content.split(b"\n")
        for line in lines:
            pid, what, *words = line.decode().split()
            if words:
                name, first, last = words[0], int(words[1]), int(words[2])
            if what == "writing":
                self.writing[int(pid)].add(name)
                self.twice += first < self.stored[name]
            elif what == "wrote":
                self.writing[int(pid)].discard(name)
                self.stored[name] = max(last, self.stored[name])
                self.moments[int(pid)] = "run"  # workers of Dask report nothing else
            else:
                self.moments[int(pid)] = what

    def find_moment(self, pid):
        """What a process is doing, or was when it ended."""
        self.read()
        return "write" if self.writing[pid] else self.moments.get(pid)


class Row:
    """What was tried, and what came of it: a row of the table."""

    def __init__(self, name, whole, details=sys.stderr):
        self.name, self.whole, self.details = name, whole, details
        self.kills, self.counts = Counter(), Counter()

    def check(self, folder, log):
        """Compare all that is stored with the uninterrupted run."""
        log.read()
        self.counts["twice"] += log.twice if "shards growing" not in self.name else 0
        log.twice = 0
        found = read_records(folder)
        sizes = Counter({name: record.num_trials for name, record in found.items()})
        self.counts["lost"] += sum(sizes[name] < number for name, number in log.stored.items())
        self.counts["wrong"] += sum(
            not begins(record, self.whole[name]) for name, record in found.items()
        )
        log.stored |= sizes

    def finish(self, folder, log):
        """The same, of a store that is finished."""
        self.check(folder, log)
        self.counts["lost"] += sum(
            log.stored[name] < record.num_trials for name, record in self.whole.items()
        )
        with contextlib.suppress(OSError):
            self.counts["left over"] += len(
                [file for file in folder.rglob("*") if file.name[0] == "."]
            )
        self.counts["sweeps"] += 1

    def to_dict(self):
        return {"kills": dict(self.kills), "counts": dict(self.counts)}

    def add(self, other):
        self.kills.update(other["kills"])
        self.counts.update(other["counts"])


def read_records(folder):
    """The records in a store that count as stored, by name."""
    if not (folder / store_module.MANIFEST).is_file():
        return {}
    described = store_module.hash_json(store_module.read_manifest(folder)["sweep"])
    records = {
        file.stem: store_module.read_record(file, described) for file in folder.glob("cells/*.npz")
    }
    return {name: record for name, record in records.items() if record is not None}


def begins(record, whole):
    """Whether a record has the bits of the first trials of another one."""
    return record.results.keys() == whole.results.keys() and all(
        values.dtype == whole.results[name].dtype
        and values.tobytes() == whole.results[name][: len(values)].tobytes()
        for name, values in record.results.items()
    )


# ---- processes -----------------------------------------------------------------------------------


def fork(function, *args):
    """Call a function in a fork of this process, which must not have started JAX. Returns the
    number of the process."""
    pid = os.fork()
    if pid:
        CHILDREN.append(pid)
        return pid
    try:
        function(*args)
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
    except sweep.StoreError:
        os._exit(FULL)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def end_all():
    """Kill the processes that are still there."""
    for pid in CHILDREN:
        with contextlib.suppress(ChildProcessError):  # it was waited for
            if not has_ended(pid):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def run_observed(log, folder, is_cold, options):
    # What is compiled takes longer than what is read from the cache: kills should fall into both.
    jax.config.update("jax_enable_compilation_cache", not is_cold)
    run(folder, on_progress=observe(log), **options)


def wait(pid, seconds=PATIENCE):
    """The exit code of a process, negative where a signal ended it; None if it is still there after
    some time."""
    end = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.001)


def has_ended(pid):
    """Whether a child of this process has ended; it can still be waited for."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def aim(pid, log, rng, spread, is_over, weights=(2, 2, 3, 3)):
    """Wait for a moment of a process, chosen at random, and a random time more. False if it ended
    before."""
    moment = rng.choices(MOMENTS, weights)[0]
    while log.find_moment(pid) != moment:
        if is_over():
            return False
        time.sleep(0.0002)
    time.sleep(rng.uniform(0, spread[moment]))
    return not is_over()


def kill_processes(row, folder, kills, rng, spread, shards=1, number=signal.SIGKILL):
    """Kill the processes that run the shards of a sweep, start them again, and so on until all have
    finished."""
    log = Log(folder.with_suffix(".log"))
    expected = INTERRUPTED if number == signal.SIGINT else -number
    processes, waiting = {}, set(range(shards))

    def end(shard, allowed):
        code = wait(processes[shard])
        if code is None:
            row.counts["hung"] += 1
            os.kill(processes[shard], signal.SIGKILL)
            code = wait(processes[shard])
        elif code not in allowed:
            row.counts["errors"] += 1
        del processes[shard]
        if code == 0:
            waiting.discard(shard)
        return code

    while waiting:
        for shard in waiting - processes.keys():
            options = {
                "workers": 2 // shards,
                "shard": (shard, shards),
                "growing": "growing" in row.name,
            }
            processes[shard] = fork(run_observed, log.path, folder, rng.random() < 0.1, options)
        victims = rng.sample(sorted(waiting), len(waiting) if rng.random() < 0.3 else 1)
        pid = processes[victims[0]]
        if row.kills.total() < kills and aim(pid, log, rng, spread, partial(has_ended, pid)):
            # Of a process that is killed the last line is its last deed; one that is interrupted
            # goes on for a while.
            moments = {shard: log.find_moment(processes[shard]) for shard in victims}
            for shard in victims:
                os.kill(processes[shard], number)
            for shard in victims:
                pid = processes[shard]
                if end(shard, (expected, 0)) == expected:
                    row.kills[
                        moments[shard] if number == signal.SIGINT else log.find_moment(pid)
                    ] += 1
                else:
                    row.counts["too late"] += 1
        else:
            for shard in list(processes) if row.kills.total() >= kills else victims[:1]:
                end(shard, (0,))
        row.check(folder, log)
    row.finish(folder, log)


def fill_disks(row, folder, kills, rng, has_disk):
    """Let the disk be full after some records, free a part of it, and so on until the sweep is
    finished."""
    log = Log((folder.parent.parent if has_disk else folder.parent) / f"{folder.name}.log")
    ballast, manifest = folder.with_suffix(".ballast"), folder / store_module.MANIFEST
    code = None
    while code != 0:
        limit = resource.RLIM_INFINITY
        if row.kills.total() < kills and has_disk:
            with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
                while True:
                    file.write(bytes(PAGE))
            os.truncate(ballast, max(0, ballast.stat().st_size - rng.randrange(12) * PAGE))
        elif row.kills.total() < kills:
            limit = rng.choice([100, 2000]) if rng.random() < 0.8 else limit
        else:
            ballast.unlink(missing_ok=True)

        def run_full(limit=limit):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            run(folder, on_progress=observe(log.path), workers=2)

        begun = manifest.exists()
        pid = fork(run_full)
        code = wait(pid)
        if code == FULL:
            row.kills["write" if begun or manifest.exists() else "start"] += 1
        elif code != 0:
            row.counts["hung" if code is None else "errors"] += 1
            if code is None:
                os.kill(pid, signal.SIGKILL)
        row.check(folder, log)
    row.finish(folder, log)
    shutil.rmtree(folder)  # the disk is small


# ---- Dask ----------------------------------------------------------------------------------------


def kill_dask_workers(row, parent, kills, rng, spread, answer):
    """Kill workers of a Dask cluster while a sweep runs on it; in a fork, which starts JAX and the
    cluster."""
    import dask
    import distributed

    # Else the cluster closes what starts a worker again, if that worker was not there 15 seconds
    # after a kill.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "1 day"})

    class Observe(distributed.WorkerPlugin):
        def __init__(self, log):
            self.log = log

        def setup(self, worker):
            from tests import kill_sweeps

            kill_sweeps.observe(self.log)

    number = 0
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        while row.kills.total() < kills:
            folder = parent / f"dask-{number}"
            log = Log(folder.with_suffix(".log"))
            client.register_plugin(Observe(str(log.path)), name=f"observe-{number}")
            number += 1
            finished = threading.Event()

            def is_over(pid, finished=finished):
                return finished.is_set() or not is_alive(pid)

            # Not while they start: Dask gives up a worker that dies before the cluster knows it,
            # and waits for another.
            def kill(log=log, finished=finished, is_over=is_over):
                while row.kills.total() < kills and not finished.is_set():
                    pid = rng.choice([nanny.pid for nanny in cluster.workers.values()] or [None])
                    if pid is None:
                        time.sleep(0.05)
                    elif aim(pid, log, rng, spread, partial(is_over, pid), (0, 0, 1, 1)):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                            row.kills[log.find_moment(pid)] += 1
                        while not is_over(pid):
                            time.sleep(0.01)

            killer = threading.Thread(target=kill)
            killer.start()
            while not finished.is_set():
                try:
                    run(folder, executor=client.get_executor(), num_tasks=8, workers=1)
                    finished.set()
                except (
                    distributed.scheduler.KilledWorker
                ):  # by default, a task may lose three workers
                    row.counts["given up by Dask"] += 1
                row.check(folder, log)
            killer.join()
            row.finish(folder, log)
            client.unregister_worker_plugin(f"observe-{number - 1}")
    answer.write_text(json.dumps(row.to_dict()))


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# ---- the command ---------------------------------------------------------------------------------


def measure(folder):
    """An uninterrupted run: its records, and how long kills of each moment should be spread."""
    log = Log(folder.with_suffix(".log"))
    pid = fork(run_observed, log.path, folder, False, {"workers": 2})
    seconds, last = Counter(), time.monotonic()
    while not has_ended(pid):
        now = time.monotonic()
        seconds[log.find_moment(pid)] += now - last
        last = now
        time.sleep(0.0002)
    if wait(pid) != 0:
        raise SystemExit("the uninterrupted run failed")
    whole = read_records(folder)
    return whole, {
        "start": seconds["start"],
        "compile": seconds["compile"],
        "run": (seconds["run"] + seconds["write"]) / 4,
        "write": 1.2 * seconds["write"] / len(whole),
    }


def mount_disk(folder):
    """Mount a tmpfs of 1 MiB in the namespace that `main` has made; None where that is not
    allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    is_mounted = (
        "JAXHT_NAMESPACE" in os.environ
        and subprocess.run(command, capture_output=True).returncode == 0
    )
    return folder if is_mounted else None


def enter_namespace():
    """Start this command again in a Linux namespace in which it may mount a file system, where that
    is allowed."""
    command = ["unshare", "--user", "--map-root-user", "--mount"]
    with contextlib.suppress(OSError):
        is_allowed = subprocess.run([*command, "true"], capture_output=True).returncode == 0
        if is_allowed and "JAXHT_NAMESPACE" not in os.environ:
            os.environ["JAXHT_NAMESPACE"] = "1"
            os.execvp(
                command[0], [*command, sys.executable, "-m", "tests.kill_sweeps", *sys.argv[1:]]
            )


def show(rows):
    heads = [*MOMENTS, "kills", *FAULTS]
    print(f"| what | {' | '.join(heads)} |\n|---|{'---:|' * len(heads)}")
    for row in rows:
        numbers = [
            *(row.kills[moment] for moment in MOMENTS),
            row.kills.total(),
            *(row.counts[f] for f in FAULTS),
        ]
        print(f"| {row.name} | {' | '.join(map(str, numbers))} |", flush=True)


def try_one(name, row, kills, folder, disk, rng, spread):
    """Interrupt sweeps in one of the ways, until the number of kills is reached."""
    number = 0
    while row.kills.total() < kills and not row.counts["errors"]:
        number += 1
        store = folder / f"{name.replace(' ', '-')}-{number}"
        if "Dask" in name:
            answer = folder / "dask.json"
            if (
                wait(
                    fork(kill_dask_workers, row, folder, kills, rng, spread, answer),
                    60 * (kills + 1),
                )
                == 0
            ):
                row.add(json.loads(answer.read_text()))
            else:
                row.counts["errors"] += 1
        elif "disk" in name:
            fill_disks(row, (disk or folder) / f"full-{number}", kills, rng, disk is not None)
        elif "shards" in name:
            kill_processes(row, store, kills, rng, spread, shards=2)
        else:
            kill_processes(row, store, kills, rng, spread, number=SIGNALS[name.rpartition(" ")[2]])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--only", default="", help="a pattern of the names of what is to be tried")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--folder", type=Path, help="where the stores are made  [default: the system's for such]"
    )
    arguments = parser.parse_args()
    enter_namespace()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell has what it starts in the background ignore it
    jaxht.keep_programs()
    xarray.Dataset({"x": 0})  # imports what it needs, once for all forks
    store_module.import_xarray()
    rng, begin, rows = random.Random(arguments.seed), time.monotonic(), []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        measure(folder / "first")  # compiles
        whole, spread = measure(folder / "whole")
        print("kills are spread over", spread, file=sys.stderr)
        disk = mount_disk(folder / "disk")
        if disk:
            stack.callback(subprocess.run, ["umount", str(disk)], check=True)
        chosen = {name: share for name, share in SHARES.items() if re.search(arguments.only, name)}
        stack.callback(end_all)
        with contextlib.suppress(KeyboardInterrupt):  # then what was done until now is shown
            for name, share in chosen.items():
                rows.append(Row(name, whole))
                kills = max(1, round(share / sum(chosen.values()) * arguments.kills))
                try_one(name, rows[-1], kills, folder, disk, rng, spread)
                print(
                    f"{time.monotonic() - begin:.0f} s: {name}: {rows[-1].to_dict()}",
                    file=sys.stderr,
                    flush=True,
                )
    total = Row("all", whole)
    for row in rows:
        total.add(row.to_dict())
    print(
        f"{time.monotonic() - begin:.0f} s; the full disk was {'a tmpfs' if disk else 'a limit on the size of files'}"
    )
    show([*rows, total])
    sys.exit(any(total.counts[fault] for fault in FAULTS))


if __name__ == "__main__":
    from tests import (
        kill_sweeps,  # so that what is sent to other processes has a module that they can import
    )

    kill_sweeps.main()
