"""Wheel and sdist in environments that have nothing but the core: `python -m tests.wheel dist/*`,
after `make dist`.

Each archive is installed by pip, with the dependencies that it names, into a new environment.
There, outside of the checkout:

* `import jaxht` is the installed package, in the version that the archive says, and no extra is
  installed;
* each block of Python in the README runs, but for those on sweeps and estimators;
* these, and all else that needs an extra, end in an ImportError that names the extra.
"""

import argparse
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tempfile
import traceback
import venv
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DISTRIBUTION = "jax-hard-thresholding"
EXTRAS = [
    "sklearn",
    "matplotlib",
    "xarray",
    "h5netcdf",
    "h5py",
    "tqdm",
    "zarr",
]  # modules that no core brings

# What needs an extra, and its name.
NEED_EXTRAS = {
    "import jaxht.sklearn": "sklearn",
    "import jaxht; jaxht.sklearn.L0Regressor": "sklearn",
    "from jaxht import sweep; sweep.run(lambda key, cell: {'K': cell['k']}, {'k': [1]}, num_trials=1)": "sweep",
    "from jaxht import sweep; sweep.progress_bar('mine').__enter__()": "sweep",
}


def install_and_check(archive: Path) -> bool:
    """Whether all holds for a wheel or sdist, in an environment of its own."""
    with tempfile.TemporaryDirectory() as folder:
        print(f"{archive.name}: installing it ...", flush=True)
        venv.create(Path(folder, "env"))
        python = str(Path(folder, "env", "bin", "python"))
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--quiet",
            "--quiet",
            "--disable-pip-version-check",
            "--python",
            python,
        ]
        subprocess.run([*pip, "install", str(archive.resolve())], check=True, cwd=folder)
        # -I: neither the checkout nor PYTHONPATH is looked at.
        inside = [python, "-I", str(Path(__file__).resolve()), "--inside", str(archive.name)]
        return subprocess.run(inside, cwd=folder).returncode == 0


def failure_of_install(archive: str) -> str | None:
    """What is wrong with the package that is imported."""
    import jaxht

    version = importlib.metadata.version(DISTRIBUTION)
    extras = [name for name in EXTRAS if importlib.util.find_spec(name)]
    if not Path(jaxht.__file__).is_relative_to(sys.prefix):
        return f"jaxht was imported from {jaxht.__file__}"
    if jaxht.__version__ != version or f"-{version}" not in archive:
        return f"{archive} is version {version}, and jaxht.__version__ is {jaxht.__version__}"
    if extras:
        return f"the environment has {extras}"
    if not (Path(jaxht.__file__).parent / "py.typed").exists():
        return "py.typed is missing"
    return None


def failure_of(code: str, extra: str | None) -> str | None:
    """What is wrong with a run of some code, which should end in an ImportError if it needs an
    extra."""
    try:
        exec(code, {"__name__": "block"})
    except ImportError as error:
        if extra is None or f"{DISTRIBUTION}[{extra}]" not in str(error):
            return traceback.format_exc()
        return None
    except Exception:
        return traceback.format_exc()
    return None if extra is None else f"it ran without the extra {extra}"


def check_inside(archive: str) -> list[str]:
    """What fails in this environment, printed as it is found."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    checks = [("the installed package", lambda: failure_of_install(archive))]
    for number, block in enumerate(blocks, 1):
        extra = next((name for name in ("sweep", "sklearn") if f"jaxht.{name}" in block), None)
        checks.append((f"block {number} of the README", partial(failure_of, block, extra)))
    checks += [(code, partial(failure_of, code, extra)) for code, extra in NEED_EXTRAS.items()]
    failed = []
    for name, check in checks:
        what = check()
        print(
            f"  {'FAILED' if what else 'passed'}: {name}",
            *([what] if what else []),
            sep="\n",
            flush=True,
        )
        failed += [name] if what else []
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("archives", type=Path, nargs="*", help="a wheel, an sdist, or several")
    parser.add_argument(
        "--inside",
        metavar="NAME",
        help="check this environment, into which the archive was installed",
    )
    args = parser.parse_args()
    if args.inside:
        sys.exit(bool(check_inside(args.inside)))
    if not args.archives:
        parser.error("name the archives, for example dist/*")
    sys.exit(not all([install_and_check(archive) for archive in args.archives]))


if __name__ == "__main__":
    main()
