"""Programs are kept for later processes: by a call, by the environment, and by the command line."""

import os
import subprocess
import sys
import time

import jax
import pytest

from jaxht._kept_programs import trim

SCRIPT = """
import jax
import jax.numpy as jnp
import jaxht

found = []
jax.monitoring.register_event_listener(lambda event, **kwargs: found.append(event.rpartition("/")[2]))
jaxht.keep_programs()
total = jax.jit(lambda x: jnp.sum(x**2))(jnp.arange(4.0))
print(found.count("cache_hits"), found.count("cache_misses"), float(total))
"""


def compile_in_a_process(folder, **settings):
    """(how many programs were read, how many were compiled and kept), in a process whose caches are
    in the folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {
        "XDG_CACHE_HOME": str(folder),
        "HOME": str(folder),
        "LOCALAPPDATA": str(folder),
        **settings,
    }
    command = [sys.executable, "-c", SCRIPT]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    read, kept, total = run.stdout.split()
    assert total == "14.0"
    return int(read), int(kept), run.stderr


def files(folder):
    return sorted(file for file in folder.rglob("*-cache") if file.is_file())


def test_a_second_process_compiles_nothing(tmp_path):
    read, kept, _ = compile_in_a_process(tmp_path)
    assert read == 0 and kept > 0
    assert compile_in_a_process(tmp_path)[:2] == (kept, 0)
    # A write that was interrupted costs a compile and its place.
    files(tmp_path)[0].write_bytes(b"")
    assert compile_in_a_process(tmp_path) == (kept - 1, 1, "")
    # What is damaged costs a compile and a warning.
    files(tmp_path)[0].write_bytes(b"no program")
    assert compile_in_a_process(tmp_path)[0] == kept - 1


def test_a_folder_of_ones_own(tmp_path):
    before = [jax.config.jax_compilation_cache_dir, os.environ.get("JAX_COMPILATION_CACHE_DIR")]
    code = f"import jaxht; print(jaxht.keep_programs({str(tmp_path / 'mine')!r}))"
    run = run_alone(code)
    assert run.stdout.strip() == str(tmp_path / "mine") and (tmp_path / "mine").is_dir()
    assert before == [
        jax.config.jax_compilation_cache_dir,
        os.environ.get("JAX_COMPILATION_CACHE_DIR"),
    ]


@pytest.mark.parametrize("value", ["", "0", "1", "folder"])
def test_the_environment_asks_for_it(value, tmp_path):
    """Importing the library changes no setting unless it is asked to."""
    folder = str(tmp_path / value) if value == "folder" else value
    code = "import jax, jaxht; print(jax.config.jax_compilation_cache_dir)"
    found = run_alone(code, JAXHT_KEEP_PROGRAMS=folder, XDG_CACHE_HOME=str(tmp_path)).stdout.strip()
    if value in ("", "0"):
        assert found == "None"
    elif value == "1":
        assert "jaxht" in found
    else:
        assert found == folder


FIT = """
import numpy as np
from jaxht.sklearn import L0Classifier
X = np.random.default_rng(0).standard_normal((90, 30))
for k in (2, 3, 40):
    L0Classifier(min(k, 30)).fit(X, X[:, 0] + X[:, 1] > 0)
"""


def test_a_fit_that_compiles_says_once_how_programs_are_kept(tmp_path):
    assert run_alone(FIT).stderr.count("keep_programs") == 1
    kept = run_alone(FIT, JAXHT_KEEP_PROGRAMS=str(tmp_path))
    assert "keep_programs" not in kept.stderr and any(tmp_path.iterdir())


def run_alone(code, **settings):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX")}
    environment |= settings
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return run


@pytest.mark.parametrize("name", ["JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE"])
def test_what_the_user_has_set_stands(name, tmp_path):
    own = tmp_path / "own"
    value = str(own) if name.endswith("DIR") else "false"
    read, kept, _ = compile_in_a_process(tmp_path / "home", **{name: value})
    assert read == 0 and len(files(own)) == kept and not files(tmp_path / "home")
    assert (kept > 0) == name.endswith("DIR")


def test_without_a_folder_to_write_to_there_is_no_cache(tmp_path):
    (tmp_path / "file").touch()
    assert compile_in_a_process(tmp_path / "file") == (0, 0, "")


def test_the_folder_is_bounded(tmp_path):
    """Those that were used longest ago go, and what is not a program's whole text."""
    now = time.time()
    for age, (name, size) in enumerate({"new": 40, "empty": 0, "middle": 50, "old": 20}.items()):
        (tmp_path / name).write_bytes(b"x" * size)
        os.utime(tmp_path / name, (now - age, now - 100))
    (tmp_path / "folder").mkdir()
    trim(tmp_path, max_bytes=90)
    assert {path.name for path in tmp_path.iterdir()} == {"new", "middle", "folder"}
    trim(tmp_path, max_bytes=0)
    assert {path.name for path in tmp_path.iterdir()} == {"folder"}


FITS = """
import os
import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import jaxht
from jaxht.extend import pytree
from jaxht.sklearn import L0Classifier, L0Regressor

events = []
jax.monitoring.register_event_duration_secs_listener(lambda event, *args, **kw: events.append(event))

def fit(name, model, target):
    events.clear()
    coef = model.fit(X, target).coef_.ravel()
    traces = sum("jaxpr_trace" in event for event in events)
    compiles = len([event for event in events if event.endswith("cache_retrieval_time_sec")])
    print(name, traces, compiles, " ".join(float(value).hex() for value in coef[:5]))

@pytree
class Own(jaxht.OMP):
    def score(self, problem, iterate, state):
        scores, growth = super().score(problem, iterate, state)
        return OWN_FACTOR * scores, growth

OWN_FACTOR = float(os.environ["OWN_FACTOR"])
X = np.random.default_rng(0).standard_normal((90, 30))
y = X[:, 0] - X[:, 3] + 0.3 * X[:, 4] + 0.1 * X[:, 7]
fit("classes", L0Classifier(4), y > 0)
fit("squares", L0Regressor(4, random_state=0), y)
fit("criterion", L0Regressor("ebic", k_max=5), y)
fit("own", L0Regressor(4, solver=Own()), y)
"""


def fit_all(folder, own_factor="1", **settings):
    """For each fit its name: how many programs were traced and read, and the coefficients."""
    found = run_alone(FITS, JAXHT_KEEP_PROGRAMS=str(folder), OWN_FACTOR=own_factor, **settings)
    fits = {}
    for line in found.stdout.splitlines():
        name, traces, reads, *coef = line.split()
        fits[name] = (int(traces), int(reads), coef)
    return fits


def test_a_second_process_traces_nothing_that_it_knows(tmp_path):
    """What is traced depends on all of its settings, and a user's own functions are traced anew."""
    pytest.importorskip("flatbuffers")
    first = fit_all(tmp_path)
    second = fit_all(tmp_path)
    library = ["classes", "squares", "criterion"]
    for name in [*library, "own"]:
        assert first[name][1] == 0 and second[name][1] > 0
        assert first[name][2] == second[name][2]
        assert (first[name][0] > second[name][0]) == (name in library)
    # With the sign of its scores the solver's own selection changes.
    assert fit_all(tmp_path, own_factor="-1")["own"][2] != second["own"][2]

    # A file that is damaged, in a single bit, is written anew.
    damaged = {}
    for trace in tmp_path.glob("*.trace"):
        content = bytearray(trace.read_bytes())
        content[len(content) // 2] ^= 2
        damaged[trace] = bytes(content)
        trace.write_bytes(damaged[trace])
    third = fit_all(tmp_path)
    assert all(third[name] == (first[name][0], *second[name][1:]) for name in library)
    assert all(trace.read_bytes() != content for trace, content in damaged.items())

    # Another setting of JAX is another program.
    precise = fit_all(tmp_path, JAX_DEFAULT_MATMUL_PRECISION="highest")
    assert all(precise[name][0] >= first[name][0] for name in library)


def test_traces_of_files_that_have_changed_since_are_not_kept(tmp_path):
    pytest.importorskip("flatbuffers")
    code = """
import numpy as np
import jaxht
import jaxht.runner._exported as exported

exported.IMPORTED += SHIFT
A = np.random.default_rng(0).standard_normal((20, 5))
jaxht.solve(jaxht.LeastSquares(A, A[:, 1]), jaxht.Sparse(2))
"""
    for name, shift in (("unchanged", 0), ("changed", -1e10)):
        folder = tmp_path / name
        run_alone(code.replace("SHIFT", str(shift)), JAXHT_KEEP_PROGRAMS=str(folder))
        assert any(folder.iterdir())
        assert any(folder.glob("*.trace")) == (name == "unchanged")


def test_a_relative_folder_stays_where_it_was(tmp_path):
    code = """
import os, jax, jaxht
jaxht.keep_programs("kept")
os.mkdir("elsewhere")
os.chdir("elsewhere")
jax.jit(lambda x: 2 * x)(1.0)
"""
    run_alone(f"import os\nos.chdir({str(tmp_path)!r})\n{code}")
    assert any((tmp_path / "kept").iterdir()) and not any((tmp_path / "elsewhere").iterdir())
