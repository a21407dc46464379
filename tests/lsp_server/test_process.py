"""The process that owns the model: what it keeps of its own errors."""

import logging
import stat

import pytest

from lsp_server import process


@pytest.fixture
def log(tmp_path):
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    process.keep_log(lambda: tmp_path)
    yield tmp_path / process.SERVER_LOG
    for handler in [handler for handler in root.handlers if handler not in handlers]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    logging.captureWarnings(False)


@pytest.mark.parametrize("is_there_already", [False, True])
def test_the_servers_log_is_for_its_user_alone_also_when_it_is_rotated(log, is_there_already):
    if is_there_already:
        log.write_text("")
        log.chmod(0o644)
    for number in range(3):
        logging.getLogger("lsp_server.test").error("%s %s", number, "x" * 2**19)
    assert {stat.S_IMODE(file.stat().st_mode) for file in log.parent.iterdir()} == {0o600}
    assert log.with_suffix(".log.1").exists()
