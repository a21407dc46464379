"""The GPU benchmark runs from end to end where there is no GPU: a small shape on the CPU."""

import json

import pytest

from benchmarks import gpu


@pytest.fixture
def threads_as_before():
    threads = gpu.torch.get_num_threads()
    yield
    gpu.torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.usefixtures("threads_as_before")
def test_every_section_runs_on_a_small_shape_without_a_gpu(tmp_path):
    report_file = tmp_path / "gpu.json"
    assert gpu.main(["--device", "cpu", "--tiny", "--json", str(report_file)]) == 0
    report = json.loads(report_file.read_text())
    assert set(gpu.SECTIONS) < set(report)
    skipped = [name for name in gpu.SECTIONS if "skipped" in report[name]]
    assert skipped == []
    assert report["one_shape"]["texts_that_differ"] == 0
    assert report["forced_acceptance"]["63"]["tokens_per_pass"] == 64
    assert report["precision"]["argmax_equal"] > 0.8
    assert all(line["ok"] for line in report["bounds"])


def test_without_a_card_it_says_what_to_run_instead(capsys):
    if gpu.torch.cuda.is_available():
        pytest.skip("there is a card here")
    assert gpu.main([]) == 2
    assert "--device cpu --tiny" in capsys.readouterr().err
