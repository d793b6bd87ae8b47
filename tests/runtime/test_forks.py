import os
import subprocess
import sys
from pathlib import Path

import pytest

LOADED_SLOWLY = "import time\ntime.sleep(0.5)\nNAME = 1\n"
FORKS_MEANWHILE = """
import os, threading, time
import linkspan, linkspan.runtime.forks
linkspan.__path__.append({folder!r})
loading = threading.Thread(target=__import__, args=("linkspan.loaded_slowly",))
loading.start()
time.sleep(0.1)
if os.fork() == 0:
    from linkspan.loaded_slowly import NAME
    os._exit(NAME)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_waits_for_a_module_that_another_thread_loads(tmp_path: Path) -> None:
    (tmp_path / "loaded_slowly.py").write_text(LOADED_SLOWLY)
    code = FORKS_MEANWHILE.format(folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1\n", done.stderr
