"""The progress of a sweep, in numbers, and as a bar in terminals, log files and notebooks."""

import contextlib
import io
import re
import time

import pytest

from jaxht import sweep
from tests.sweeps import bits

pytestmark = pytest.mark.usefixtures("all_quickly")


def test_progress_is_reported():
    calls = []
    sweep.run(
        bits, {"K": [1, 2, 3]}, num_trials=4, max_lanes=4, workers=1, on_progress=calls.append
    )
    done = [progress.done for progress in calls]
    assert done[0] == 0
    assert done[-1] == 12
    assert done == sorted(done)
    assert len(done) >= 3
    assert {progress.total for progress in calls} == {12}
    # The first report, before anything is compiled, says what is being done, and the last that
    # nothing is.
    notes = [progress.note for progress in calls]
    assert notes[0] == "compiling ..." and notes[-1] == ""
    first_trials = next(i for i, number in enumerate(done) if number)
    assert notes[:first_trials] == ["compiling ..."] * (first_trials - 1) + [""]


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_compiling_is_shown_at_once(stream):
    """In a log file as the first line, in a terminal beside the bar, both before there are
    trials."""
    shown = []
    with contextlib.redirect_stderr(stream()) as written, sweep.progress_bar("mine") as bar:

        def show(progress):
            bar(progress)
            shown.append((progress.done, written.getvalue()))

        sweep.run(bits, {"K": [1, 2]}, num_trials=4, on_progress=show)
    done, text = shown[0]
    assert done == 0 and "mine" in text and "0/8" in text and "compiling ..." in text


def test_the_rate_is_that_of_the_trials(capsys):
    """The time of compiling does not count; neither is there a rate before the first trial."""
    with sweep.progress_bar("mine") as bar:
        bar(sweep.Progress(0, 8, note="compiling ..."))
        time.sleep(1.0)
        compiled = time.monotonic()
        bar(sweep.Progress(0, 8))
        time.sleep(0.1)
        bar(sweep.Progress(4, 8))
    slowest = 4 / (time.monotonic() - compiled)
    first, *_, last = capsys.readouterr().err.splitlines()
    assert "? runs/s" in first
    rate = float(re.search(r"([0-9.]+) runs/s", last)[1])
    assert slowest - 0.01 <= rate <= 4 / 0.1 + 0.01
    assert re.search(r"00:0[1-9]<", last)


def test_a_log_file_gets_lines(capsys):
    """Also of a process that has loaded IPython and its kernel, as those that run notebooks do, and
    is no kernel."""
    pytest.importorskip("ipykernel")
    assert pytest.importorskip("IPython").get_ipython() is None
    with sweep.progress_bar("mine", interval=0.0) as bar:
        sweep.run(bits, {"K": [1, 2, 3]}, num_trials=40, on_progress=bar)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 2
    assert "compiling ..." in lines[0] and "compiling ..." not in lines[-1]
    assert "100%" in lines[-1]
    assert "120/120" in lines[-1]
    assert "runs/s" in lines[-1]
    assert all(line.startswith("mine") for line in lines)
    assert sum("120/120" in line for line in lines) == 1


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """What the cell of a notebook has shown, as the arguments of each call of its front end."""
    pytest.importorskip("IPython")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    from IPython.core.displaypub import CapturingDisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    class Shell(InteractiveShell):
        """A shell that has a kernel, as that of a notebook."""

        kernel = "its kernel"
        display_pub_class = CapturingDisplayPublisher

    config = Config({"HistoryManager": {"enabled": False}})
    shell = Shell.instance(config=config)
    yield shell.display_pub.outputs
    shell.restore_sys_module_state()
    Shell.clear_instance()


def test_a_notebook_gets_one_output(notebook):
    """It is updated, and ends at 100 %; tests/test_first_hour.py executes a notebook."""
    with sweep.progress_bar("mine", interval=0.0) as bar:
        sweep.run(bits, {"K": [1, 2, 3]}, num_trials=40, on_progress=bar)
    assert len({output["transient"]["display_id"] for output in notebook}) == 1
    assert [output["update"] for output in notebook] == [False] + [True] * (len(notebook) - 1)
    shown = [output["data"]["text/plain"] for output in notebook]
    assert len(shown) > 2 and "compiling ..." in shown[0]
    assert "100%" in shown[-1] and "120/120" in shown[-1] and "compiling ..." not in shown[-1]
    notebook.clear()
    with sweep.progress_bar("mine", interval=1e6) as bar:
        for done in range(9):
            bar(sweep.Progress(done, 8))
    shown = [output["data"]["text/plain"] for output in notebook]
    assert len(shown) == 2 and "0/8" in shown[0] and "8/8" in shown[1]
